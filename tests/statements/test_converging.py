"""Evidence on record settles what is unknown: answers that came late, and receivers' words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from deliveries import acknowledgements, reconcile
from deliveries.acknowledgements import Said, Source
from deliveries.audit import WALKS
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.models import Acknowledgement, Attempt
from deliveries.transport.base import Evidence, Outcome
from ledger import audit
from ledger.models import Operation, Run
from ledger.outcome import Applied, Rejected
from tests.api.rows import let_lease_expire
from tests.support import database, deliveries
from tests.support import ledger_rows as rows

pytestmark = pytest.mark.django_db

OWNER = "worker:1:a"
TTL_MS = 30_000


def claimed(**endpoint: object) -> Delivery:
    """One delivery in a dispatcher's hands."""
    tenant = deliveries.tenant()
    deliveries.endpoint(tenant, "http://127.0.0.1:9/", **{"idempotent": False, **endpoint})
    deliveries.submitted_in_silence(deliveries.events(tenant))
    (delivery,), _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    delivery.sent_at = time.monotonic()
    return delivery


def report(delivery: Delivery, status: int | None) -> None:
    """What a worker says once it has woken up: an answer, or that it heard none."""
    verdict = "unknown" if status is None else "answered"
    outcome = Outcome(delivery.key, verdict, status, (), b"", "", Evidence())
    answers = settling.settle([Report(delivery, outcome, time.monotonic())], owner=OWNER)
    assert isinstance(answers[delivery.key], Rejected)


def now(delivery: Delivery) -> Operation:
    found: Operation = Operation.objects.get(operation_key=delivery.key)
    return found


def lost_then_heard(delivery: Delivery, status: int | None) -> None:
    let_lease_expire(delivery.claim)
    assert reconcile.sweep().expired == 1
    report(delivery, status)


def heard_then_lost(delivery: Delivery, status: int | None) -> None:
    """The reconciler has not swept yet: there is no row of a lost worker that could learn anything."""
    let_lease_expire(delivery.claim)
    report(delivery, status)
    assert now(delivery).status == "dispatching"


def overlooked() -> list[str]:
    """What the audit says should not be unknown any more, without patience for the next sweep."""
    stretches = audit.walk(WALKS, batch=100, patience_ms=0)
    return [one.subject for stretch in stretches for one in stretch.breaches if one.kind == "unknown_reason"]


ORDERS = pytest.mark.parametrize("happen", [lost_then_heard, heard_then_lost])


@ORDERS
def test_a_late_acceptance_is_kept_and_settles_it(happen: Callable[[Delivery, int | None], None]) -> None:
    delivery = claimed()
    happen(delivery, 200)
    assert reconcile.sweep().converged == 1
    operation = now(delivery)
    assert operation.status == "succeeded"
    assert operation.result is not None
    assert operation.result["converged_by"] == acknowledgements.LATE_EVIDENCE
    assert Run.objects.get(run_id=delivery.claim.run_id).status == "succeeded"
    attempt = Attempt.objects.get(operation_key=delivery.key)
    assert (attempt.late, attempt.http_status, attempt.classification) == (True, 200, "accepted")
    assert attempt.evidence is not None
    assert attempt.evidence["request_digest"] == delivery.claim.request_digest.hex()
    assert reconcile.sweep().converged == 0


@ORDERS
@pytest.mark.parametrize("status", [None, 500, 502])
def test_a_late_answer_that_leaves_it_open_whether_the_receiver_acted_proves_nothing(
    happen: Callable[[Delivery, int | None], None], status: int | None
) -> None:
    delivery = claimed()
    happen(delivery, status)
    assert reconcile.sweep().converged == 0
    assert now(delivery).status == "unknown"
    attempt = Attempt.objects.get(operation_key=delivery.key)
    assert (attempt.late, attempt.http_status) == (True, status)


@ORDERS
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("status", [302, 400, 429, 503])
def test_when_the_only_send_was_refused_late_it_is_tried_again_by_schedule(
    happen: Callable[[Delivery, int | None], None], status: int, idempotent: bool
) -> None:
    delivery = claimed(idempotent=idempotent, retry_schedule=[60])
    happen(delivery, status)
    assert reconcile.sweep().converged == 1
    operation = now(delivery)
    assert (operation.status, operation.ambiguous, operation.attempts) == ("prepared", False, 1)
    assert operation.due_at is not None
    assert operation.due_at > operation.updated_at
    assert operation.result is not None
    assert operation.result["converged_by"] == acknowledgements.LATE_EVIDENCE
    assert operation.result["evidence"]["attempts"] == 1
    assert reconcile.sweep().converged == 0


@ORDERS
@pytest.mark.parametrize(("status", "schedule"), [(400, []), (410, [60, 60])])
def test_when_the_only_send_was_refused_late_and_there_is_no_other_try_it_failed(
    happen: Callable[[Delivery, int | None], None], status: int, schedule: list[int]
) -> None:
    delivery = claimed(retry_schedule=schedule)
    happen(delivery, status)
    assert reconcile.sweep().converged == 1
    assert now(delivery).status == "failed_final"
    assert Run.objects.get(run_id=delivery.claim.run_id).status == "failed"


def test_a_late_refusal_says_nothing_about_a_send_whose_worker_never_reported() -> None:
    delivery = claimed(idempotent=True, retry_schedule=[60, 60])
    let_lease_expire(delivery.claim)
    swept = reconcile.sweep()
    assert (swept.expired, swept.scheduled) == (1, 1)
    rows.change("ledger_dispatch", {"operation_key": delivery.key}, due_at=rows.from_now(-1))
    (again,), _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    again.sent_at = time.monotonic()
    lost_then_heard(again, 400)
    assert [one.classification for one in Attempt.objects.order_by("number")] == ["worker_lost", "rejected"]
    assert reconcile.sweep().converged == 0
    assert now(again).status == "unknown"


def test_refused_late_and_quarantined_it_is_left_to_a_person(settings: Any) -> None:
    settings.RELAY_POISON_LOSSES = 1
    delivery = claimed(retry_schedule=[60])
    lost_then_heard(delivery, 400)
    assert reconcile.sweep().converged == 0
    assert now(delivery).status == "unknown"
    assert not overlooked()
    settings.RELAY_POISON_LOSSES = 2
    assert overlooked()
    settings.RELAY_POISON_LOSSES = 1
    say(delivery, Said.REJECTED)
    assert reconcile.sweep().converged == 1
    assert now(delivery).status == "failed_final"


def test_while_it_is_sent_again_a_late_refusal_moves_nothing() -> None:
    delivery = claimed(idempotent=True, retry_schedule=[60, 60])
    let_lease_expire(delivery.claim)
    assert reconcile.sweep().scheduled == 1
    rows.change("ledger_dispatch", {"operation_key": delivery.key}, due_at=rows.from_now(-1))
    (again,), _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    report(delivery, 400)
    assert acknowledgements.converge([delivery.key]) == {}
    assert (now(again).status, now(again).dispatch_owner) == ("unknown", OWNER)
    assert not overlooked()
    let_lease_expire(again.claim)
    report(again, 400)
    assert acknowledgements.converge([delivery.key]) == {}, "every send is refused, and the claim is still on record"
    swept = reconcile.sweep()
    assert (swept.expired, swept.converged) == (1, 1)
    assert (now(again).status, now(again).attempts) == ("prepared", 2)


def test_a_late_refusal_of_another_request_proves_nothing() -> None:
    delivery = claimed()
    lost_then_heard(delivery, 400)
    with database.unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE deliveries_attempt SET evidence = jsonb_set(evidence, '{request_digest}', %s)"
            " WHERE operation_key = %s",
            [f'"{"0" * 64}"', delivery.key],
        )
    assert reconcile.sweep().converged == 0
    assert now(delivery).status == "unknown"


def test_a_receivers_word_outweighs_what_our_attempts_prove() -> None:
    delivery = claimed()
    lost_then_heard(delivery, 400)
    say(delivery, Said.PROCESSED)
    assert reconcile.sweep().converged == 1
    assert now(delivery).status == "succeeded"


def test_a_late_acceptance_of_another_request_proves_nothing() -> None:
    delivery = claimed()
    lost_then_heard(delivery, 200)
    with database.unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE deliveries_attempt SET evidence = jsonb_set(evidence, '{request_digest}', %s)"
            " WHERE operation_key = %s",
            [f'"{"0" * 64}"', delivery.key],
        )
    assert reconcile.sweep().converged == 0
    assert now(delivery).status == "unknown"


def test_an_acceptance_outweighs_a_later_word() -> None:
    delivery = claimed()
    lost_then_heard(delivery, 200)
    say(delivery, Said.REJECTED)
    assert reconcile.sweep().converged == 1
    assert now(delivery).status == "succeeded"


def say(delivery: Delivery, said: Said, source: Source = Source.QUERY, **more: Any) -> None:
    acknowledgements.record(
        operation_key=delivery.key,
        run_id=delivery.claim.run_id,
        source=source,
        said=said,
        remote_id=None,
        detail="",
        actor="a test",
        status=200,
        **more,
    )


def unknown(**endpoint: object) -> Delivery:
    delivery = claimed(**endpoint)
    let_lease_expire(delivery.claim)
    assert reconcile.sweep().expired == 1
    return delivery


@pytest.mark.parametrize(
    ("source", "said", "schedule", "after"),
    [
        (Source.QUERY, Said.PROCESSED, [1], "succeeded"),
        (Source.QUERY, Said.REJECTED, [1], "failed_final"),
        (Source.QUERY, Said.NEVER_ARRIVED, [1], "prepared"),
        (Source.QUERY, Said.NEVER_ARRIVED, [], "failed_final"),
        (Source.QUERY, Said.UNKNOWN, [1], "unknown"),
        (Source.ACKNOWLEDGEMENT, Said.PROCESSED, [1], "succeeded"),
        (Source.ACKNOWLEDGEMENT, Said.REJECTED, [1], "failed_final"),
        (Source.ACKNOWLEDGEMENT, Said.NEVER_ARRIVED, [1], "unknown"),
    ],
)
def test_what_each_word_leads_to(source: Source, said: Said, schedule: list[int], after: str) -> None:
    delivery = unknown(retry_schedule=schedule)
    say(delivery, said, source)
    answers = acknowledgements.converge([delivery.key])
    assert all(isinstance(answer, Applied) for answer in answers.values())
    assert bool(answers) is (after != "unknown")
    assert now(delivery).status == after


def test_the_newest_authoritative_word_counts() -> None:
    delivery = unknown()
    for said in (Said.REJECTED, Said.PROCESSED, Said.UNKNOWN):
        say(delivery, said)
    acknowledgements.converge([delivery.key])
    assert now(delivery).status == "succeeded"


def test_that_nothing_arrived_is_not_believed_once_it_was_sent_again() -> None:
    delivery = unknown()
    say(delivery, Said.NEVER_ARRIVED)
    acknowledgements.converge([delivery.key])
    assert now(delivery).status == "prepared"
    with database.unguarded(), connection.cursor() as cursor:
        for table in ("ledger_operation", "ledger_dispatch"):
            cursor.execute(f"UPDATE {table} SET due_at = clock_timestamp() WHERE operation_key = %s", [delivery.key])  # noqa: S608 - our own names
    (again,), _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    say(delivery, Said.NEVER_ARRIVED, sends=1)  # asked before, answered now
    say(delivery, Said.NEVER_ARRIVED)  # while it is in flight
    let_lease_expire(again.claim)
    swept = reconcile.sweep()
    assert (swept.expired, swept.converged) == (1, 0)
    assert now(delivery).status == "unknown"
    say(delivery, Said.NEVER_ARRIVED)
    assert reconcile.sweep().converged == 1
    assert now(delivery).status == "prepared"


def test_a_word_under_the_name_of_another_run_is_kept_and_counts_for_nothing() -> None:
    delivery, other = unknown(), unknown()
    acknowledgements.record(
        operation_key=delivery.key, run_id=other.claim.run_id, source=Source.ACKNOWLEDGEMENT, said=Said.PROCESSED,
        remote_id=None, detail="", actor="a test", status=None,
    )  # fmt: skip
    assert reconcile.sweep().converged == 0
    assert Acknowledgement.objects.filter(operation_key=delivery.key).count() == 1
    assert {now(delivery).status, now(other).status} == {"unknown"}


def test_a_patrol_goes_on_where_it_ended_and_begins_anew() -> None:
    keys = sorted(unknown().key for _ in range(3))
    first = acknowledgements.converge_stretch(0, batch=2)
    assert (first.walked_to, first.walked) == (keys[1], 2)
    rest = acknowledgements.converge_stretch(first.walked_to, batch=2)
    assert (rest.walked_to, rest.walked) == (0, 1)


def test_the_quarantine_begins_at_the_limit(settings: Any) -> None:
    settings.RELAY_POISON_LOSSES = 1
    delivery = unknown(idempotent=True)
    assert now(delivery).losses == 1
    assert reconcile.quarantined(now(delivery))
    assert reconcile.sweep().scheduled == 0
    settings.RELAY_POISON_LOSSES = 2
    assert not reconcile.quarantined(now(delivery))
    assert reconcile.sweep().scheduled == 1
