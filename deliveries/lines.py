"""The lines of ordered endpoints: what stands in one, why its first one holds the others, and how one is moved aside.

A delivery to an ordered endpoint is put in line when its event is accepted, and is sent only when it is the first: when
everything that was accepted before it is settled, or has left the line. What leaves it does not come back; a replay
stands in none. Switching `ordered` off puts nothing more in line, and what stands there is still sent in order.

Limit: acceptance of one ordered endpoint's events is one commit after another.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from django.conf import settings

from deliveries.queries import DELIVERIES
from ledger import identity
from ledger.managers import task
from ledger.outcome import Applied, Rejected
from ledger.statements import in_transaction

log = logging.getLogger("relay.lines")

MOST = 1_000
"""How far a line is counted."""
STEPS = 500
"""How many lines one sweep looks at: one index seek each."""
POLICY = "policy:order_patience"
"""Who moved aside what its endpoint had no more patience for."""
CONTROL = "relay"
"""Who moved aside what was cancelled."""
CANCELLED = "Its run is cancelled: nothing of it is sent again."
_NEVER = uuid.UUID(int=0)


class Hold(StrEnum):
    """Why the first in line holds the others."""

    SENDING = "sending"
    """It is being sent at this moment."""
    DUE = "due"
    """It is due: the next dispatcher that looks sends it."""
    LATER = "later"
    """Its time, or that of its next attempt, has not come: `until`."""
    UNKNOWN = "unknown"
    """Nobody knows what became of it, and only evidence or a person moves it on."""
    QUARANTINED = "quarantined"
    """Its last sends each lost their worker: only evidence or a person moves it on."""
    DISABLED = "disabled"
    """The endpoint is disabled or deleted: nothing is sent to it."""
    BLOCKED = "blocked"
    """The receiver asked for a pause: `until`."""
    BREAKER = "breaker"
    """The endpoint's breaker is open: `until`."""


_WORDS = {
    Hold.SENDING: "The first one is being sent.",
    Hold.DUE: "The first one is due.",
    Hold.LATER: "The first one waits for its time.",
    Hold.UNKNOWN: "Nobody knows what became of the first one. It needs evidence or a person.",
    Hold.QUARANTINED: "The last sends of the first one each lost their worker. It needs a person.",
    Hold.DISABLED: "The endpoint receives nothing.",
    Hold.BLOCKED: "The receiver asked for a pause.",
    Hold.BREAKER: "The endpoint's breaker is open.",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line that somebody stands in. `length` is counted up to `MOST`; `more`: there are more than that.

    `since`: when the first one was first sent, and so had become the first; None: nothing of it was sent yet.
    `until`: when it, or its endpoint, may go on by itself; None: not by the clock.
    """

    endpoint_id: uuid.UUID
    length: int
    more: bool
    task_id: uuid.UUID
    operation_key: int
    operation_id: str
    status: str
    attempts: int
    patience: int | None
    accepted_at: datetime
    since: datetime | None
    hold: Hold
    until: datetime | None

    @property
    def why(self) -> str:
        """Why the first one holds the others, in a sentence."""
        return _WORDS[self.hold]

    @property
    def counted(self) -> str:
        """How many stand in it, in words: `7`, `1000+`."""
        return f"{self.length}+" if self.more else str(self.length)


@dataclass(frozen=True, slots=True)
class _Row:
    task_id: uuid.UUID
    tenant_id: str
    operation_key: int
    run_id: uuid.UUID
    step_id: str
    effect_version: int
    status: str
    attempts: int
    losses: int
    claimed: bool
    first_dispatched_at: datetime | None
    created_at: datetime
    due_at: datetime | None
    receives: bool
    blocked_until: datetime | None
    order_patience: int | None
    unwell: bool
    open_until: datetime | None
    at: datetime
    standing: int


@dataclass(frozen=True, slots=True)
class _Place:
    operation_key: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Overstaying:
    walked_to: uuid.UUID | None
    steps: int
    task_id: uuid.UUID | None
    operation_key: int | None
    attempts: int | None
    forsaken: bool | None


@dataclass(frozen=True, slots=True)
class Moved:
    """What one look at the lines came to: where it ended, and how many left theirs."""

    walked_to: uuid.UUID
    moved: int


def of(endpoint_id: uuid.UUID) -> Line | None:
    """The line of an endpoint as it is now; None when nobody stands in it, ordered or not."""
    rows = DELIVERIES["line.show"].rows(_Row, {"endpoint_id": endpoint_id, "most": MOST})
    if not rows:
        return None
    (row,) = rows
    hold, until = _hold(row)
    return Line(
        endpoint_id=endpoint_id,
        length=min(row.standing, MOST),
        more=row.standing > MOST,
        task_id=row.task_id,
        operation_key=row.operation_key,
        operation_id=identity.compose(row.tenant_id, row.run_id, row.step_id, row.effect_version),
        status=row.status,
        attempts=row.attempts,
        patience=row.order_patience,
        accepted_at=row.created_at,
        since=row.first_dispatched_at,
        hold=hold,
        until=until,
    )


def places(operation_keys: Iterable[int]) -> dict[int, bool]:
    """Of these operations, those that stand in line; true for the first of its endpoint, which holds the others."""
    keys = list(operation_keys)
    if not keys:
        return {}
    return {row.operation_key: row.is_first for row in DELIVERIES["line.places"].rows(_Place, {"operation_keys": keys})}


def leave(task_id: uuid.UUID, *, actor: str, reason: str) -> Applied[str | None] | Rejected:
    """A person moves a delivery aside: it leaves its line, for a reason that is kept with their name.

    Refused when it stands in none (`NOT_IN_LINE`), is settled (`WRONG_STATUS`), or is being sent at this moment
    (`CLAIMED`): the next in line would overtake it. It is sent when it is due, and keeps its own truth.
    """
    return in_transaction(lambda: task.leave_line({task_id: reason}, actor=actor))[task_id]


def leave_cancelled(task_id: uuid.UUID) -> None:
    """A delivery was cancelled: what is left of it, of which nobody knows whether it was taken, holds nobody up.

    What is in flight does, until it is settled or its claim runs out; then the next look at the lines moves it aside.
    """
    answer = in_transaction(lambda: task.leave_line({task_id: CANCELLED}, actor=CONTROL))[task_id]
    if isinstance(answer, Applied):
        log.info("delivery %s was cancelled and left its line", task_id)


def move_aside(after: uuid.UUID = _NEVER) -> Moved:
    """One bounded look at the lines after an endpoint: those first in line whose endpoint has no more patience with
    them, and those that were cancelled while they were unknown, leave theirs. The policy's word is kept as a person's.
    """
    rows = DELIVERIES["line.overstaying"].rows(_Overstaying, {"after": after, "steps": STEPS})
    walked_to = rows[0].walked_to if rows[0].steps == STEPS and rows[0].walked_to else _NEVER
    moved = 0
    for actor, forsaken in ((POLICY, False), (CONTROL, True)):
        reasons = {
            row.task_id: CANCELLED if forsaken else f"Not settled after {row.attempts} attempts."
            for row in rows
            if row.task_id is not None and row.forsaken is forsaken
        }
        if reasons:
            moved += _move(reasons, actor)
    return Moved(walked_to, moved)


def _move(reasons: dict[uuid.UUID, str], actor: str) -> int:
    """Let these leave their lines; how many did. The others moved on since they were looked at."""
    moved = 0
    for task_id, answer in in_transaction(partial(task.leave_line, reasons, actor=actor)).items():
        if isinstance(answer, Applied):
            moved += 1
            log.warning("delivery %s left its line, %s: %s", task_id, answer.row, reasons[task_id])
    return moved


def _hold(row: _Row) -> tuple[Hold, datetime | None]:
    """Why, and until when; what a person must do goes before what passes by itself."""
    if row.claimed:
        return Hold.SENDING, None
    if not row.receives:
        return Hold.DISABLED, None
    if row.due_at is None:
        lost: int = settings.RELAY_POISON_LOSSES
        return (Hold.QUARANTINED if row.losses >= lost else Hold.UNKNOWN), None
    waits = [
        (when, hold)
        for when, hold in (
            (row.blocked_until, Hold.BLOCKED),
            (row.open_until if row.unwell else None, Hold.BREAKER),
            (row.due_at, Hold.LATER),
        )
        if when is not None and when > row.at
    ]
    if not waits:
        return Hold.DUE, None
    when, hold = max(waits)
    return hold, when
