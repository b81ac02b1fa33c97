"""The audit: what must be true of every row of the ledger at every moment, read while it is in use.

Each walk goes through one table in key order, a stretch at a time, and each stretch is one statement: it judges rows
together with what belongs to them on one snapshot, and so sees every commit whole or not at all. Nothing is locked and
nothing is written. Memory holds one stretch of breaches, never a table.

Limit: it judges what stands there now. What was overwritten since leaves no trace; that is what revisions, epochs and
the append-only records are for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger.statements import LEDGER

KINDS: Mapping[str, str] = {
    "active_run": "the active run of a task exists and is its own",
    "active_run_newest": "the active run of a task is its newest",
    "one_open_run": "a task has at most one open run",
    "run_row": "status, reason and revision of a run are possible ones",
    "run_task": "the task of a run exists",
    "run_lease": "every run has a lease",
    "run_operation": "every run has an operation",
    "run_succeeded": "a succeeded run has a succeeded operation, and none that is unsettled",
    "run_failed": "a failed run has a failed operation, and none that is unsettled",
    "run_cancelled": "nothing of a cancelled run is prepared any more",
    "run_pending": "a pending run has begun no attempt",
    "run_left_behind": "a run ends when its last operation is settled",
    "lease_row": "owner and epoch of a lease are possible ones",
    "lease_of_the_ended": "nobody keeps the lease of a run that is over",
    "epoch_fell": "an epoch is never below one under which something was claimed or taken over",
    "operation_row": "status and counts of an operation are possible ones",
    "operation_run": "the run of an operation exists",
    "operation_intent": "one intent has one operation",
    "prepared": "what is prepared is due at some time and was never ambiguous",
    "unknown": "what is unknown had an ambiguous attempt",
    "claim_whole": "a claim has owner, epoch and end, and only what may be on the wire has one",
    "claim_lease": "a claim of the lease's present epoch is its owner's",
    "claim_overdue": "a claim that ran out is ended within a few sweeps",
    "ended_without_attempt": "what succeeded or failed was attempted",
    "queue_row_missing": "what is unsettled has a queue row",
    "queue_row_subject": "a queue row names run, tenant and endpoint of its operation",
    "queue_row_claim": "a queue row is claimed when its operation is, and for as long",
    "queue_row_unknown": "a queue row says since when its operation is unknown, exactly when it is",
    "queue_row_line": "a queue row stands in line exactly when its task does",
    "queue_row_due": "a queue row is due when its operation is",
    "queue_row_left_over": "what is settled has no queue row",
    "line_overtaken": "nothing in line is sent while another stands before it",
    "takeover_run": "the run of a takeover exists",
    "takeover_order": "the epochs of a run's takeovers rise",
    "fenced_write_subject": "run and operation of a fenced write exist",
    "resolution_row": "a resolution has an operation, a reason and a known decision",
    "resolution_followed": "an operation became what was decided, by one more revision, or left its line",
}
"""Every kind of breach: what must hold, in words."""

NO_UUID = str(uuid.UUID(int=0))
NO_NUMBER = str(-(2**63))


@dataclass(frozen=True, slots=True)
class Found:
    """A row of an audit statement: a breach, or (without a kind) the last key walked to and how many rows that were."""

    kind: str | None
    subject: str | None
    what: str | None
    walked: int | None


@dataclass(frozen=True, slots=True)
class _Size:
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class _Key:
    operation_key: int | None


@dataclass(frozen=True, slots=True)
class Walk:
    """One table to go through. `by`: what its keys are, "time" (UUIDs of version 7), "operation" or "number"."""

    table: str
    by: str
    stretch: Callable[[Mapping[str, Any]], list[Found]]


@dataclass(frozen=True, slots=True)
class Breach:
    """A row of which something is not true."""

    kind: str
    subject: str
    what: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one statement looked at and found."""

    table: str
    rows: int
    breaches: Sequence[Breach]


def _rows(name: str, given: Mapping[str, Any]) -> list[Found]:
    return LEDGER[name].rows(Found, given)


WALKS: tuple[Walk, ...] = (
    Walk("ledger_task", "time", lambda given: _rows("audit.tasks", given)),
    Walk("ledger_run", "time", lambda given: _rows("audit.runs", given)),
    Walk("ledger_operation", "operation", lambda given: _rows("audit.operations", given)),
    Walk("ledger_dispatch", "operation", lambda given: _rows("audit.pointers", given)),
    Walk("ledger_takeover", "number", lambda given: _rows("audit.takeovers", given)),
    Walk("ledger_fenced_write", "number", lambda given: _rows("audit.fenced_writes", given)),
    Walk("ledger_resolution", "number", lambda given: _rows("audit.resolutions", given)),
)


def walk(walks: Iterable[Walk], *, batch: int, patience_ms: int, since: datetime | None = None) -> Iterator[Stretch]:
    """Go through tables, `batch` rows a statement. Each stretch is a statement of its own: no transaction stays open.

    `patience_ms`: for how long what the clock decides may wait for the reconciler. `since`: only what was made then or
    later, where the keys tell; records that are numbered are walked whole.
    """
    starts = {"time": NO_UUID, "operation": NO_NUMBER, "number": NO_NUMBER}
    if since is not None:
        starts["time"] = str(uuid.UUID(int=int(since.timestamp() * 1000) << 80))
        (first,) = LEDGER["audit.before"].rows(_Key, {"run_id": starts["time"]})
        starts["operation"] = str(2**63 - 1 if first.operation_key is None else first.operation_key)
    for one in walks:
        after: str | None = starts[one.by]
        while after is not None:
            found = one.stretch({"after": after, "batch": batch, "patience_ms": patience_ms})
            (end,) = [row for row in found if row.kind is None]
            rows = end.walked or 0
            breaches = [Breach(row.kind, row.subject or "", row.what or "") for row in found if row.kind is not None]
            yield Stretch(one.table, rows, breaches)
            after = end.subject if rows == batch else None


def expected_rows(walks: Iterable[Walk]) -> int | None:
    """About how many rows the walks will see, by PostgreSQL's own estimates; None when it has none yet."""
    tables = [one.table for one in walks]
    sizes = {size.name: size.rows for size in LEDGER["audit.sizes"].rows(_Size, {"tables": sorted(set(tables))})}
    return None if min(sizes.values(), default=-1) < 0 else sum(sizes.get(table, 0) for table in tables)
