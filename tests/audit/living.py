"""A ledger in which something stands in every state, brought there by the product's own code and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deliveries import acknowledgements, expunging, reconcile
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.models import Said, Source
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Evidence, Outcome
from ledger.managers import lease, run, task, unknown
from ledger.outcome import Applied, Rejected
from ledger.states import Decision, RunReason
from tests.support import deliveries, ledger_rows
from tests.support.deliveries import Watched, events, submitted_in_silence

OWNER = "audited/1/aaaaaa"
TTL_MS = 30_000
URL = "http://127.0.0.1:9/"
TYPES = (
    "delivered", "retried", "refused", "unsent", "unknown", "scheduled", "resolved", "lost", "acknowledged", "waiting",
    "cancelled", "expunged", "in_flight",
)  # fmt: skip
LATER = frozenset({"waiting", "cancelled"})
PROMISE_NOTHING = frozenset({"unknown", "resolved", "acknowledged"})


def living(tenant_id: str) -> dict[str, Watched]:
    """One delivery of each type, by its type. Inside a transaction, or for good."""
    for name in TYPES:
        deliveries.endpoint(
            tenant_id, URL + name, types=[name], idempotent=name not in PROMISE_NOTHING, retry_schedule=[1000]
        )
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    made: dict[str, Watched] = {}
    for name in TYPES:
        (made[name],) = submitted_in_silence(
            events(tenant_id, type=name, deliver_at=tomorrow if name in LATER else None)
        )
        if name not in LATER:
            _live(name, made[name], _claimed(made[name]))
    assert all(isinstance(answer, Applied) for answer in run.cancel([made["cancelled"].run_id]).values())
    assert expunging.expunge(tenant_id, [made["expunged"].event_id]) == {made["expunged"].event_id}
    task_id = made["delivered"].run.task_id
    assert isinstance(task.open_run([task_id], reason=RunReason.REPLAY)[task_id], Applied)
    (held,) = lease.renew([(made["retried"].run_id, 1)], owner=OWNER, ttl_ms=TTL_MS).values()
    assert isinstance(held, Rejected), "its refusal is a fenced write on record"
    return made


def _claimed(one: Watched) -> Delivery:
    claimed, _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    (delivery,) = claimed
    assert delivery.key == one.operation_key
    delivery.sent_at = delivery.claimed_at
    return delivery


def _live(name: str, one: Watched, delivery: Delivery) -> None:
    match name:
        case "delivered" | "expunged":
            _settle(delivery, ANSWERED, 200)
        case "retried":
            _settle(delivery, ANSWERED, 429)
        case "refused":
            _settle(delivery, ANSWERED, 410)
        case "unsent":
            _settle(delivery, NOT_SENT, None)
        case "unknown" | "scheduled" | "resolved" | "acknowledged":
            _settle(delivery, UNKNOWN, None)
            _move_on(name, one)
        case "lost":
            planted = ledger_rows.Planted(
                one.run.task_id, one.run_id, one.operation_key, one.event_id, delivery.claim.endpoint_id, b""
            )
            ledger_rows.expire_claim(planted)
            assert reconcile._expire() == 1


def _move_on(name: str, one: Watched) -> None:
    if name == "resolved":
        answer = unknown.resolve(
            operation_key=one.operation_key, actor="somebody", decision=Decision.SUCCEEDED, reason="They called.",
            revision=one.operation.revision,
        )  # fmt: skip
        assert isinstance(answer, Applied)
    elif name == "acknowledged":
        acknowledgements.record(
            operation_key=one.operation_key, run_id=one.run_id, source=Source.ACKNOWLEDGEMENT, said=Said.PROCESSED,
            remote_id=None, detail="", actor="its receiver", status=None,
        )  # fmt: skip
        (converged,) = acknowledgements.converge([one.operation_key]).values()
        assert isinstance(converged, Applied)


def _settle(delivery: Delivery, verdict: str, status: int | None) -> None:
    evidence = Evidence(sends=int(verdict != NOT_SENT), request_complete=verdict == ANSWERED)
    outcome = Outcome(delivery.key, verdict, status, (), b"", "", evidence)
    (answer,) = settling.settle([Report(delivery, outcome, delivery.claimed_at)], owner=OWNER).values()
    assert isinstance(answer, Applied), answer
