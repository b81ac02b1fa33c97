"""The reconciler: finds what nobody will finish, and moves it on by evidence. Safe to run anywhere, twice at once."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings

from deliveries import acknowledgements, asking, health, lines
from deliveries.dispatch import owner
from deliveries.dispatch.attempts import AttemptRow, record
from deliveries.dispatch.settling import retry_delay_ms, window_ms
from deliveries.models import Endpoint, Verdict
from deliveries.queries import DELIVERIES
from ledger.managers import dispatch, run, unknown
from ledger.managers.unknown import Expired, Retry
from ledger.models import Operation
from ledger.statements import in_transaction
from ledger.states import OperationStatus

log = logging.getLogger("relay.reconcile")

BATCH = 500
BATCHES = 4
"""How many batches of one kind a sweep takes on: it runs between sends, and must not keep them waiting."""
STRETCH = 2_000
RECENT_SWEEPS = 20
"""For how many sweeps a refused settlement is looked at again for what it brought."""
LOST = "worker_lost"
"""The classification of an attempt whose worker was lost before it could say what became of it."""


@dataclass(frozen=True, slots=True)
class _UnscheduledRow:
    operation_key: int
    endpoint_id: uuid.UUID
    revision: int
    attempts: int
    age_s: float


@dataclass(frozen=True, slots=True)
class _HopelessRow:
    operation_key: int
    revision: int


@dataclass(frozen=True, slots=True)
class _KeyRow:
    operation_key: int


@dataclass(frozen=True, slots=True)
class _RunRow:
    run_id: uuid.UUID


@dataclass(slots=True)
class Swept:
    """What one sweep did, in rows. `overdue`: work is due that nobody seems to have been told of. `askable`: a receiver
    may be asked what became of an operation."""

    expired: int = 0
    converged: int = 0
    scheduled: int = 0
    withdrawn: int = 0
    cancelled: int = 0
    moved_aside: int = 0
    disabled: int = 0
    finished: int = 0
    repaired: int = 0
    overdue: bool = False
    askable: bool = False


@dataclass(slots=True)
class _Patrol:
    """Where this process's patrols of the key order stand; each goes round and round."""

    runs: uuid.UUID = field(default_factory=lambda: uuid.UUID(int=0))
    operations: int = 0
    pointers: int = 0
    unknown: int = 0
    unscheduled: int = 0
    hopeless: int = 0
    lines: uuid.UUID = field(default_factory=lambda: uuid.UUID(int=0))


_PATROL = _Patrol()


def quarantined(operation: Operation) -> bool:
    """Whether its last sends each lost their worker, so that it is not sent again by itself: it may be what kills them.

    Only evidence moves it on, or a person, whose retry begins the count anew.
    """
    limit: int = settings.RELAY_POISON_LOSSES
    return operation.status == OperationStatus.UNKNOWN and operation.losses >= limit


def sweep() -> Swept:
    """One sweep, a bounded number of bounded batches, each a short transaction; what is left over is for the next one.

    1. Claims that expired: unknown, with an attempt on record that says its worker was lost; their leases taken over.
    2. Unknown operations about which something conclusive is on record: settled by it.
    3. Unknown operations of idempotent endpoints inside their window: sent again under the same id, unless their last
       sends each lost their worker. Those that wait for a retry to an endpoint that is closed: for a person instead.
    4. What waits for a deleted endpoint: cancelled.
    5. What is first in line of an ordered endpoint, and has used up its patience: moved aside.
    6. Endpoints that have accepted nothing for days: disabled, and said so of half way there.
    7. Patrols: runs left behind by their operation, and queue rows that are missing, wrong or left over.
    8. Due work that nobody was told of, and receivers to ask: reported, for the caller to ring. Nothing is asked here.

    Several may run at once: each statement skips what another holds locked, and moves only what is still so.
    """
    swept = Swept()
    swept.expired = _expire()
    swept.converged = _converge()
    swept.scheduled = _schedule()
    swept.withdrawn = _withdraw()
    swept.cancelled = _cancel_for_deleted()
    swept.moved_aside = _move_aside()
    swept.disabled = health.disable_failing()
    _patrol(swept)
    overdue = DELIVERIES["dispatch.overdue"].rows(_KeyRow, {"age_ms": settings.RELAY_SWEEP_MS})
    # Whoever stood behind what was moved aside may have been due for long.
    swept.overdue = bool(overdue or swept.moved_aside)
    swept.askable = asking.any_due()
    if swept != Swept(overdue=swept.overdue, askable=swept.askable):
        log.info("%s", swept)
    return swept


def _expire() -> int:
    total = 0
    for _ in range(BATCHES):
        expired = in_transaction(_expire_batch)
        total += len(expired)
        if len(expired) < BATCH:
            break
    return total


def _expire_batch() -> list[Expired]:
    expired = unknown.expire_claims(batch=BATCH, owner=owner.current())
    if expired:
        endpoints = Endpoint.objects.in_bulk({one.endpoint_id for one in expired})
        record([_lost_attempt(one, endpoints[one.endpoint_id].url) for one in expired])
        for one in expired:
            log.warning(
                "claim of operation %s by %s (epoch %s) expired: unknown", one.operation_key, one.lost_owner,
                one.lost_epoch,
            )  # fmt: skip
    return expired


def _lost_attempt(one: Expired, url: str) -> AttemptRow:
    return AttemptRow(
        operation_key=one.operation_key,
        number=one.attempts,
        epoch=one.lost_epoch,
        owner=one.lost_owner,
        url=url,
        started_at=one.dispatched_at,
        ended_at=None,
        verdict=Verdict.UNKNOWN.value,
        classification=LOST,
        http_status=None,
        response_headers=None,
        response_body=None,
        error="The worker was lost after it claimed this delivery: nobody can say whether the request was sent.",
        evidence=None,
    )


def _converge() -> int:
    total = acknowledgements.converge_reported_late(batch=BATCH, age_ms=RECENT_SWEEPS * settings.RELAY_SWEEP_MS)
    for _ in range(BATCHES):
        stretch = acknowledgements.converge_stretch(_PATROL.unknown, batch=BATCH)
        _PATROL.unknown = stretch.walked_to
        total += stretch.converged
        # Each was a transaction: what else there is is for the next sweep.
        if total or not stretch.walked_to:
            break
    return total


def _schedule() -> int:
    losses_below: int = settings.RELAY_POISON_LOSSES
    total = 0
    for _ in range(BATCHES):
        rows = DELIVERIES["dispatch.unscheduled"].rows(
            _UnscheduledRow, {"after": _PATROL.unscheduled, "batch": BATCH, "losses_below": losses_below}
        )
        _PATROL.unscheduled = rows[-1].operation_key if len(rows) == BATCH else 0
        endpoints = Endpoint.objects.in_bulk({row.endpoint_id for row in rows})
        retries = []
        for row in rows:
            endpoint = endpoints[row.endpoint_id]
            delay, window = retry_delay_ms(endpoint, row.attempts, row.age_s, None), window_ms(endpoint)
            if delay is not None and window is not None:
                retries.append(Retry(row.operation_key, row.revision, delay, window))
        if retries:
            total += len(in_transaction(partial(unknown.schedule_retry, retries, losses_below=losses_below)))
        if len(rows) < BATCH:
            break
    return total


def _withdraw() -> int:
    rows = DELIVERIES["dispatch.hopeless"].rows(_HopelessRow, {"after": _PATROL.hopeless, "batch": BATCH})
    _PATROL.hopeless = rows[-1].operation_key if len(rows) == BATCH else 0
    if not rows:
        return 0
    wishes = [Retry(row.operation_key, row.revision, None, None) for row in rows]
    return len(in_transaction(partial(unknown.schedule_retry, wishes, losses_below=settings.RELAY_POISON_LOSSES)))


def _cancel_for_deleted() -> int:
    rows = DELIVERIES["dispatch.of_deleted"].rows(_RunRow, {"batch": BATCH})
    if rows:
        in_transaction(lambda: run.cancel([row.run_id for row in rows]))
    return len(rows)


def _move_aside() -> int:
    moved = lines.move_aside(_PATROL.lines)
    _PATROL.lines = moved.walked_to
    return moved.moved


def _patrol(swept: Swept) -> None:
    runs = in_transaction(lambda: run.finish_left_behind(_PATROL.runs, batch=STRETCH, owner=owner.current()))
    _PATROL.runs = runs.walked_to or uuid.UUID(int=0)
    operations = in_transaction(lambda: dispatch.repair(_PATROL.operations, batch=STRETCH))
    _PATROL.operations = operations.walked_to or 0
    pointers = in_transaction(lambda: dispatch.sweep_left_over(_PATROL.pointers, batch=STRETCH))
    _PATROL.pointers = pointers.walked_to or 0
    swept.finished += runs.finished
    swept.repaired += operations.repaired + pointers.repaired
