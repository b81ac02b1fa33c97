"""Is it on record already that a send was taken? Asked before another one is made, and before one is called not taken.

A worker that was paused may report an acceptance long after its operation was prepared for another try, and a receiver
may say that it has processed what we took for refused. Whoever holds a claim looks here under its lease's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deliveries.queries import DELIVERIES

LATE_EVIDENCE = "late evidence"
"""Who moved an operation on by an answer that came after its worker had lost the lease."""


@dataclass(frozen=True, slots=True)
class Voucher:
    """What is on record: the number of an attempt that was accepted, reported late, or the receiver's own word."""

    operation_key: int
    late_number: int | None
    acknowledgement_id: int | None
    actor: str | None

    @property
    def by(self) -> str:
        """Whose evidence it is."""
        return LATE_EVIDENCE if self.late_number is not None or self.actor is None else self.actor

    def as_json(self) -> dict[str, int | None]:
        """For the operation's result."""
        return {"attempt": self.late_number, "acknowledgement": self.acknowledgement_id}


def vouched(operation_keys: Sequence[int]) -> dict[int, Voucher]:
    """Of these operations, those that are known to have been taken.

    Guarantee: what was committed before the caller's statement began is seen; under the lease's lock, everything that
    will ever be seen before the caller commits.
    """
    rows = DELIVERIES["acknowledgement.vouched"].rows(Voucher, {"operation_keys": list(operation_keys)})
    return {row.operation_key: row for row in rows}
