"""What a fenced write answers. Being fenced out is an expected answer, not an exception: callers `match` on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Reason(StrEnum):
    """Why a write changed nothing."""

    LEASE_LOST = "lease_lost"
    """Owner or epoch is no longer current, or the lease expired: stop, keep the evidence, write nothing terminal."""
    LEASE_HELD = "lease_held"
    """Somebody else holds the lease. This says nothing about the task."""
    CONFLICT = "conflict"
    """Same term, stale revision: read back, then recompute or stop."""
    WRONG_STATUS = "wrong_status"
    """The row is not in a status from which this move is legal."""
    MISSING = "missing"
    """There is no such row."""
    DIGEST = "digest"
    """The outcome belongs to another request than the one on record."""
    INTEGRITY = "integrity"
    """The same operation id was planned with another tool or digest."""
    GAP = "gap"
    """The version before this one was never planned: versions of an effect follow one another."""
    UNSETTLED = "unsettled"
    """An operation of the run or task is not settled: its truth is not known yet."""
    CLAIMED = "claimed"
    """The operation is being sent at this moment; whoever sends it will settle it."""
    RUN_CANCELLED = "run_cancelled"
    """The run is cancelled: nothing of it is sent again."""
    CLOSED = "closed"
    """The task is closed: no run of it is opened any more."""
    NOT_IN_LINE = "not_in_line"
    """The task stands in no line: it never did, or it left it."""
    WINDOW_OVER = "window_over"
    """The time in which the receiver promised to drop duplicates has passed."""


@dataclass(frozen=True, slots=True)
class Applied(Generic[Row]):
    """The write was current, and is done."""

    row: Row


@dataclass(frozen=True, slots=True)
class Rejected:
    """The write was refused. What was seen is read from the locked row, so it is what was true at that moment."""

    reason: Reason
    seen_owner: str | None = None
    seen_epoch: int | None = None
    seen_revision: int | None = None
    seen_status: str | None = None
    seen_expires_at: datetime | None = None
