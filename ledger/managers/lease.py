"""Leases: acquire, renew, release. Every function works on a batch and answers each run by its id."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.managers.batches import check_once, once
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER

MAX_TTL_MS = 3_600_000
"""The ceiling of a lease, in milliseconds: a lease that outlives an hour hides a dead owner for that long."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of ownership: what an owner must present with every write of the run. Given back: without an owner."""

    run_id: uuid.UUID
    owner: str | None
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class _Row:
    run_id: uuid.UUID
    refusal: str | None
    owner: str | None
    epoch: int | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Awaited:
    run_id: uuid.UUID


Answer = Applied[Term] | Rejected


def _answers(rows: list[_Row]) -> dict[uuid.UUID, Answer]:
    answers: dict[uuid.UUID, Answer] = {}
    for row in rows:
        if row.refusal is not None:
            answers[row.run_id] = Rejected(
                Reason(row.refusal), seen_owner=row.owner, seen_epoch=row.epoch, seen_expires_at=row.expires_at
            )
        else:
            assert row.epoch is not None and row.expires_at is not None
            answers[row.run_id] = Applied(Term(row.run_id, row.owner, row.epoch, row.expires_at))
    return answers


def check_ttl(ttl_ms: int) -> int:
    """`ttl_ms` when it is a lease's length: an integer, above 0, under the ceiling. `ValueError` otherwise."""
    if type(ttl_ms) is not int or not 0 < ttl_ms <= MAX_TTL_MS:
        raise ValueError(f"a lease's TTL is a whole number of milliseconds from 1 to {MAX_TTL_MS}, not {ttl_ms!r}")
    return ttl_ms


def acquire(run_ids: Sequence[uuid.UUID], *, owner: str, ttl_ms: int) -> dict[uuid.UUID, Answer]:
    """Take the leases that are free or expired, each under its next epoch.

    Answers acquired (`Applied`), held (`LEASE_HELD`) or no such run (`MISSING`). "Not acquired" never means that the
    task failed. Displacing an expired owner leaves a takeover.
    """
    return _answers(
        LEDGER["lease.acquire"].rows(_Row, {"run_ids": once(run_ids), "owner": owner, "ttl_ms": check_ttl(ttl_ms)})
    )


def renew(terms: Sequence[tuple[uuid.UUID, int]], *, owner: str, ttl_ms: int) -> dict[uuid.UUID, Answer]:
    """Extend every (run, epoch) that `owner` still holds, in one statement.

    `LEASE_LOST` cannot be revived. An answer that never came (an exception) is not proof of loss, but must be treated
    as loss: stop sending, write nothing terminal. `ValueError` when a batch names a run twice.
    """
    check_once((run_id for run_id, _ in terms), "run")
    return _answers(
        LEDGER["lease.renew"].rows(
            _Row,
            {
                "run_ids": [run_id for run_id, _ in terms],
                "epochs": [epoch for _, epoch in terms],
                "owner": owner,
                "ttl_ms": check_ttl(ttl_ms),
            },
        )
    )


def release(terms: Sequence[tuple[uuid.UUID, int]], *, owner: str) -> dict[uuid.UUID, Answer]:
    """Give back every (run, epoch) that `owner` holds. The epoch stays as it is.

    `ValueError` when a batch names a run twice.
    """
    check_once((run_id for run_id, _ in terms), "run")
    return _answers(
        LEDGER["lease.release"].rows(
            _Row,
            {"run_ids": [run_id for run_id, _ in terms], "epochs": [epoch for _, epoch in terms], "owner": owner},
        )
    )


def await_holders(run_ids: Sequence[uuid.UUID]) -> None:
    """Wait for whoever is writing these runs, so that the next statement of this transaction sees what they wrote.

    Limit: it does nothing outside of a transaction, and it is no lease: it holds until the transaction ends.
    """
    LEDGER["lease.await_holders"].rows(_Awaited, {"run_ids": list(run_ids)})
