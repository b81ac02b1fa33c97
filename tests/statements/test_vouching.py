"""A send was taken, and that is learned while another one is planned or on its way: no second effect, no false failure.

A worker that is paused after its last check sends when it wakes, after its receiver has said that nothing arrived. What
it then learns, or what the receiver says later, is believed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from deliveries import acknowledgements, reconcile
from deliveries.acknowledgements import Said, Source
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.models import Attempt
from deliveries.transport.base import Evidence, Outcome
from ledger.models import Dispatch, Lease, Run
from ledger.outcome import Applied
from tests.api.rows import let_lease_expire
from tests.statements.test_converging import OWNER, TTL_MS, claimed, now, report, say, unknown
from tests.support import ledger_rows as rows

pytestmark = pytest.mark.django_db


def prepared_again(**endpoint: Any) -> Delivery:
    """Sent once by a worker that then was lost; its receiver has said that nothing arrived."""
    delivery = unknown(**{"retry_schedule": [60, 60], **endpoint})
    say(delivery, Said.NEVER_ARRIVED)
    acknowledgements.converge([delivery.key])
    assert (now(delivery).status, now(delivery).attempts) == ("prepared", 1)
    return delivery


def accepted_late(delivery: Delivery) -> None:
    report(delivery, 200)


def processed(delivery: Delivery) -> None:
    say(delivery, Said.PROCESSED, Source.ACKNOWLEDGEMENT)


PROOFS = pytest.mark.parametrize("learn", [accepted_late, processed])


def make_due(delivery: Delivery) -> None:
    rows.change("ledger_dispatch", {"operation_key": delivery.key}, due_at=rows.from_now(-1))


def claim() -> list[Delivery]:
    found, _ = claiming.claim(Walk(), owner="worker:2:b", batch=10, ttl_ms=TTL_MS)
    for one in found:
        one.sent_at = time.monotonic()
    return found


def settle(delivery: Delivery, status: int) -> None:
    outcome = Outcome(delivery.key, "answered", status, (), b"", "", Evidence())
    answer = settling.settle([Report(delivery, outcome, time.monotonic())], owner="worker:2:b")[delivery.key]
    assert isinstance(answer, Applied)


def has_succeeded(delivery: Delivery) -> bool:
    run_id = delivery.claim.run_id
    return (
        now(delivery).status == "succeeded"
        and Run.objects.get(run_id=run_id).status == "succeeded"
        and Lease.objects.get(run_id=run_id).owner is None
        and not Dispatch.objects.filter(operation_id=delivery.key).exists()
    )


@PROOFS
def test_what_is_prepared_for_another_try_succeeds_with_the_next_sweep(learn: Callable[[Delivery], None]) -> None:
    delivery = prepared_again()
    learn(delivery)
    if learn is processed:
        acknowledgements.converge([delivery.key])
    else:
        assert reconcile.sweep().converged == 1
    assert has_succeeded(delivery)
    assert now(delivery).attempts == 1


@PROOFS
def test_what_is_due_is_not_sent_again(learn: Callable[[Delivery], None]) -> None:
    delivery = prepared_again()
    learn(delivery)
    make_due(delivery)
    assert claim() == []
    assert has_succeeded(delivery)
    assert now(delivery).attempts == 1, "nothing was sent, so no attempt was made"


@PROOFS
def test_a_same_key_retry_is_not_made_any_more(learn: Callable[[Delivery], None]) -> None:
    delivery = claimed(idempotent=True, retry_schedule=[60, 60])
    let_lease_expire(delivery.claim)
    assert reconcile.sweep().scheduled == 1
    learn(delivery)
    make_due(delivery)
    assert claim() == []
    assert has_succeeded(delivery)


@PROOFS
@pytest.mark.parametrize(("schedule", "status"), [([60, 60], 503), ([60], 409), ([60, 60], 410)])
def test_a_refused_second_send_does_not_outweigh_the_first_that_was_taken(
    learn: Callable[[Delivery], None], schedule: list[int], status: int
) -> None:
    delivery = prepared_again(retry_schedule=schedule)
    make_due(delivery)
    (again,) = claim()
    learn(delivery)
    settle(again, status)
    assert now(delivery).status == "unknown", "neither prepared nor failed"
    assert reconcile.sweep().converged == 1
    assert has_succeeded(delivery)
    assert [one.number for one in Attempt.objects.order_by("number")] == [1, 2]


def test_without_such_proof_a_refusal_is_what_it_is() -> None:
    delivery = prepared_again()
    make_due(delivery)
    (again,) = claim()
    settle(again, 503)
    assert now(delivery).status == "prepared"


def test_a_decision_of_the_receiver_outweighs_that_nothing_arrived_whichever_came_last() -> None:
    delivery = unknown()
    say(delivery, Said.PROCESSED)
    say(delivery, Said.NEVER_ARRIVED)
    acknowledgements.converge([delivery.key])
    assert has_succeeded(delivery)


def test_what_was_never_sent_cannot_have_been_processed() -> None:
    delivery = claimed()
    settling.give_back([delivery.claim], owner=OWNER)
    say(delivery, Said.PROCESSED)
    assert acknowledgements.converge([delivery.key]) == {}
    assert (now(delivery).status, now(delivery).attempts) == ("prepared", 0)


def test_that_nothing_arrived_does_not_end_a_quarantine(settings: Any) -> None:
    settings.RELAY_POISON_LOSSES = 1
    delivery = unknown()
    say(delivery, Said.NEVER_ARRIVED)
    assert acknowledgements.converge([delivery.key]) == {}
    assert reconcile.sweep().converged == 0
    assert reconcile.quarantined(now(delivery))
    say(delivery, Said.PROCESSED)
    acknowledgements.converge([delivery.key])
    assert has_succeeded(delivery)
