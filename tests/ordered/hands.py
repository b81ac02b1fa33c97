"""Two dispatchers' hands: claim and settle as the engine does, without the wire."""

from __future__ import annotations

import uuid
from typing import Any

from deliveries import reconcile
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.models import Endpoint
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Evidence, Outcome
from ledger.outcome import Applied
from tests.support import deliveries, ledger_rows
from tests.support.deliveries import Watched, events, submitted_in_silence
from tests.support.ledger_rows import OWNER, TTL_MS, Planted

URL = "http://127.0.0.1:9/"


def ordered(tenant_id: str, **changes: Any) -> Endpoint:
    """An ordered endpoint, tried again after a long time."""
    return deliveries.endpoint(tenant_id, URL, **{"ordered": True, "retry_schedule": [1000] * 10, **changes})[0]


def accepted(tenant_id: str, count: int = 1, **fields: Any) -> list[Watched]:
    """Events, one submission for all."""
    return submitted_in_silence(events(tenant_id, count, **fields))


def claimed(owner: str = OWNER) -> list[Delivery]:
    """What one dispatcher gets of everything that is due."""
    found, _ = claiming.claim(Walk(), owner=owner, batch=100, ttl_ms=TTL_MS)
    for delivery in found:
        delivery.sent_at = delivery.claimed_at
    return found


def keys(found: list[Delivery]) -> list[int]:
    """Their operations."""
    return [delivery.key for delivery in found]


def answered(delivery: Delivery, status: int | None = 200, *, owner: str = OWNER) -> None:
    """The receiver answered so; None: nobody knows."""
    verdict = UNKNOWN if status is None else ANSWERED
    _settled(delivery, Outcome(delivery.key, verdict, status, (), b"", "", Evidence(sends=1)), owner)


def not_sent(delivery: Delivery, *, owner: str = OWNER) -> None:
    """It was proven that nothing arrived."""
    _settled(delivery, Outcome(delivery.key, NOT_SENT, None, (), b"", "refused", Evidence()), owner)


def _settled(delivery: Delivery, outcome: Outcome, owner: str) -> None:
    (answer,) = settling.settle([Report(delivery, outcome, delivery.claimed_at)], owner=owner).values()
    assert isinstance(answer, Applied), answer


def lost(one: Watched) -> None:
    """Its worker died with it, and the reconciler has noticed."""
    ledger_rows.expire_claim(planted(one))
    assert reconcile._expire() == 1


def due_now(one: Watched) -> None:
    """The time of its next attempt has come."""
    for table in ("ledger_operation", "ledger_dispatch"):
        ledger_rows.change(table, {"operation_key": one.operation_key}, due_at=ledger_rows.from_now(-1))


def planted(one: Watched) -> Planted:
    """Its keys as the tests of the ledger name them."""
    task = one.run.task
    return Planted(task.task_id, one.run_id, one.operation_key, one.event_id, task.endpoint_id, b"")


def task_id(one: Watched) -> uuid.UUID:
    return one.run.task_id
