"""What a delivery lives through while nothing of Relay's own breaks: refusals, silence, and lost bells."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deliveries.models import Endpoint, Scope, Verdict
from ledger.managers import unknown as unknown_operations
from ledger.models import Resolution
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import Decision
from tests.api.rows import Caller, caller
from tests.receiver import Answer, Receiver
from tests.support import database
from tests.support.deliveries import Watched, endpoint, events, submitted, submitted_in_silence, succeeded
from tests.support.sink import Sink, reserve
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("consumer")

SOON_S = 15.0


def test_three_refusals_and_an_acceptance_are_four_attempts_of_one_operation(tenant: str) -> None:
    with Receiver() as receiver:
        receiver.answers.extend([Answer(500), Answer(500), Answer(500), Answer(200)])
        endpoint(tenant, receiver.url)
        (one,) = submitted(events(tenant))
        wait_until(lambda: succeeded(one), SOON_S, "the delivery succeeded")
        seen = [received.headers for received in receiver.requests]

    assert [headers["relay-attempt"] for headers in seen] == ["1", "2", "3", "4"]
    assert {headers["webhook-id"] for headers in seen} == {one.webhook_id}
    assert {headers["idempotency-key"] for headers in seen} == {one.operation_id}
    assert [int(headers["relay-epoch"]) for headers in seen] == [1, 2, 3, 4]
    assert [attempt.number for attempt in one.attempts] == [1, 2, 3, 4]
    assert [attempt.http_status for attempt in one.attempts] == [500, 500, 500, 200]
    assert [attempt.classification for attempt in one.attempts] == ["server_error"] * 3 + ["accepted"]
    assert one.operation.attempts == 4
    assert one.run.status == "succeeded"
    assert one.lease.owner is None
    assert not one.takeovers
    assert not one.fenced_writes


def test_a_receiver_that_is_down_at_first_is_proven_to_have_got_nothing_and_gets_it_once(tenant: str) -> None:
    port = reserve()
    endpoint(tenant, f"http://127.0.0.1:{port.getsockname()[1]}/")
    (one,) = submitted(events(tenant))
    wait_until(lambda: len(one.attempts) >= 2, SOON_S, "two attempts refused")
    waiting = one.operation
    assert waiting.status in ("prepared", "dispatching")
    assert not waiting.ambiguous

    with Sink(port) as sink:
        wait_until(lambda: succeeded(one), SOON_S, "delivered once the receiver is up")
        assert sink.events == {one.webhook_id: 1}

    *refused, accepted = one.attempts
    assert {attempt.verdict for attempt in refused} == {Verdict.NOT_SENT}
    assert {attempt.classification for attempt in refused} == {"not_sent"}
    assert accepted.verdict == Verdict.ANSWERED
    assert not one.operation.ambiguous
    assert [attempt.number for attempt in one.attempts] == list(range(1, len(refused) + 2))


@pytest.fixture
def unknown(tenant: str) -> Watched:
    """A delivery whose receiver got the request, said nothing, and promises nothing about duplicates."""
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        endpoint(tenant, receiver.url, idempotent=False)
        (one,) = submitted(events(tenant))
        wait_until(lambda: one.status == "unknown", SOON_S, "the outcome is unknown")
        assert len(receiver.requests) == 1
    return one


def test_silence_is_unknown_and_neither_sent_again_nor_called_a_failure(tenant: str) -> None:
    sweeps = Sweeps(tenant)
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        endpoint(tenant, receiver.url, idempotent=False, types=["invoice.*"])
        (one,) = submitted(events(tenant))
        wait_until(lambda: one.status == "unknown", SOON_S, "the outcome is unknown")
        before = one.rows()
        sweeps.wait_for(4)
        assert len(receiver.requests) == 1

    assert one.rows() == before
    assert one.operation.ambiguous
    assert one.run.status == "running"
    assert one.lease.owner is None
    assert one.pointer.due_at is None
    assert one.pointer.unknown_since is not None
    (attempt,) = one.attempts
    assert (attempt.verdict, attempt.http_status) == (Verdict.UNKNOWN, None)
    assert attempt.evidence is not None
    assert attempt.evidence["request_complete"] is True


def test_a_person_settles_what_is_unknown_and_a_second_one_is_shown_who_was_first(
    tenant: str, unknown: Watched
) -> None:
    first, second = caller(tenant=tenant), caller(Scope.OPERATE, Scope.READ, tenant=tenant)
    seen = first.get(f"/v1/operations/{unknown.operation_id}").json()["revision"]

    answer = _resolve(first, unknown, "succeeded", "It is in the receiver's ledger.", seen)
    assert answer.status_code == 200, answer.content
    assert answer.json()["status"] == "succeeded"
    assert unknown.run.status == "succeeded"

    late = _resolve(second, unknown, "failed", "It is not there.", seen)
    assert late.status_code == 409
    assert late.json()["current"]["status"] == "succeeded"
    assert late.json()["current"]["revision"] == seen + 1
    assert "It is in the receiver's ledger." in late.json()["detail"]
    (resolution,) = Resolution.objects.filter(operation_id=unknown.operation_key)
    assert (resolution.decision, resolution.revision_seen) == ("succeeded", seen)
    assert unknown.status == "succeeded"


def test_of_two_decisions_about_one_revision_the_ledger_takes_the_first(unknown: Watched) -> None:
    seen = unknown.operation.revision

    def resolve(actor: str, decision: Decision) -> object:
        return unknown_operations.resolve(
            operation_key=unknown.operation_key, actor=actor, decision=decision, reason="Looked it up.", revision=seen
        )

    first, second = resolve("ada", Decision.FAILED), resolve("bob", Decision.SUCCEEDED)

    assert isinstance(first, Applied)
    assert isinstance(second, Rejected)
    assert second.reason is Reason.WRONG_STATUS
    assert (second.seen_status, second.seen_revision) == ("failed_final", seen + 1)
    assert unknown.run.status == "failed"
    assert [one.actor for one in Resolution.objects.filter(operation_id=unknown.operation_key)] == ["ada"]


def test_a_person_has_it_sent_once_more_under_the_same_id(tenant: str) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(hang=True))
        endpoint(tenant, receiver.url, idempotent=False)
        (one,) = submitted(events(tenant))
        wait_until(lambda: one.status == "unknown", SOON_S, "the outcome is unknown")
        answer = _resolve(caller(tenant=tenant), one, "retry", "They say it is safe.", one.operation.revision)
        assert answer.status_code == 200, answer.content
        wait_until(lambda: succeeded(one), SOON_S, "sent once more and accepted")
        seen = [received.headers for received in receiver.requests]

    assert [headers["relay-attempt"] for headers in seen] == ["1", "2"]
    assert len({(headers["webhook-id"], headers["idempotency-key"]) for headers in seen}) == 1
    assert int(seen[1]["relay-epoch"]) > int(seen[0]["relay-epoch"])


def test_an_event_whose_wake_up_was_lost_is_delivered_within_a_sweep(tenant: str) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted_in_silence(events(tenant))
        begun = time.monotonic()
        sink.wait_for(1)
        assert time.monotonic() - begun < 5
        wait_until(lambda: succeeded(one), SOON_S, "delivered")


def test_a_flushed_broker_loses_no_delivery(tenant: str) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url)
        database.silence()
        quiet = submitted_in_silence(events(tenant, 50))
        database.silence()
        loud = submitted(events(tenant, 50))
        database.silence()
        wait_until(lambda: all(succeeded(one) for one in quiet + loud), SOON_S, "all delivered")
        assert sink.events == {one.webhook_id: 1 for one in quiet + loud}


def test_a_timeout_that_no_lease_can_carry_is_shortened_to_what_it_can(tenant: str) -> None:
    """An endpoint may have been saved when leases were longer."""
    with Sink() as sink:
        made, _ = endpoint(tenant, sink.url)
        Endpoint.objects.filter(pk=made.pk).update(timeout_ms=60_000)
        (one,) = submitted(events(tenant))
        wait_until(lambda: succeeded(one), SOON_S, "delivered in spite of its timeout")
        assert sink.events == {one.webhook_id: 1}


def _resolve(by: Caller, one: Watched, decision: str, reason: str, revision: int) -> Any:
    return by.post(
        f"/v1/operations/{one.operation_id}/resolve", {"decision": decision, "reason": reason, "revision": revision}
    )
