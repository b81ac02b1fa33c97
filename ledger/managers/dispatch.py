"""The queue: kept in step with the operations by patrols of bounded stretches."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.statements import LEDGER


@dataclass(frozen=True, slots=True)
class Patrolled:
    """How far a patrol came (None: the end of the key order) and how many pointers it put right."""

    walked_to: int | None
    repaired: int


def repair(after: int, *, batch: int) -> Patrolled:
    """Add the queue rows that are missing among the `batch` operations after key `after`."""
    (patrolled,) = LEDGER["dispatch.repair"].rows(Patrolled, {"after": after, "batch": batch})
    return patrolled


def sweep_left_over(after: int, *, batch: int) -> Patrolled:
    """Remove the queue rows of settled operations among the `batch` rows after key `after`."""
    (patrolled,) = LEDGER["dispatch.sweep_left_over"].rows(Patrolled, {"after": after, "batch": batch})
    return patrolled
