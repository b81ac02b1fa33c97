"""Ledger rows in any state, planted by plain SQL: the ORM refuses to write them, and their times may be in the past.

Every `…_ms` is milliseconds from the database's own clock; negative ones are past. None is NULL.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connection

from deliveries import ids
from ledger.managers.lease import Term
from ledger.managers.operation import Claimed
from ledger.states import OPERATION_UNSETTLED, OperationStatus, RunStatus
from tests.support.database import unguarded

OWNER = "worker-a/1/aaaaaa"
RIVAL = "worker-b/2/bbbbbb"
STRANGER = "worker-c/3/cccccc"
TENANT = "default"
TTL_MS = 30_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

TABLES = (
    "ledger_task", "ledger_run", "ledger_lease", "ledger_operation", "ledger_dispatch", "ledger_takeover",
    "ledger_resolution", "ledger_fenced_write",
)  # fmt: skip

RUN_FOLLOWS = {
    OperationStatus.PREPARED: RunStatus.PENDING,
    OperationStatus.DISPATCHING: RunStatus.RUNNING,
    OperationStatus.UNKNOWN: RunStatus.RUNNING,
    OperationStatus.SUCCEEDED: RunStatus.SUCCEEDED,
    OperationStatus.FAILED_FINAL: RunStatus.FAILED,
    OperationStatus.CANCELLED: RunStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Planted:
    """The keys of one planted task, with its run and operation."""

    task_id: uuid.UUID
    run_id: uuid.UUID
    operation_key: int
    event_id: uuid.UUID
    endpoint_id: uuid.UUID
    digest: bytes


@dataclass(frozen=True, slots=True)
class FromNow:
    """A moment on the database's clock."""

    ms: int


def from_now(ms: int | None) -> FromNow | None:
    """`ms` milliseconds from the database's now; None stays None."""
    return None if ms is None else FromNow(ms)


def _marks_and_values(columns: dict[str, Any]) -> tuple[list[str], list[Any]]:
    marks, values = [], []
    for value in columns.values():
        marks.append("clock_timestamp() + %s * interval '1 millisecond'" if isinstance(value, FromNow) else "%s")
        plain = value.ms if isinstance(value, FromNow) else value
        values.append(json.dumps(plain) if isinstance(plain, dict) else plain)
    return marks, values


def insert(table: str, returning: str | None = None, **columns: Any) -> Any:
    """One row of `table`, and the value of its column `returning`."""
    marks, values = _marks_and_values(columns)
    answer = f" RETURNING {returning}" if returning else ""
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(marks)}){answer}", values)  # noqa: S608 - our own names
        return cursor.fetchone()[0] if returning else None


def change(table: str, key: dict[str, Any], **columns: Any) -> None:
    """Set columns of exactly one row by force, whatever the protocol says."""
    marks, values = _marks_and_values(columns)
    settings = ", ".join(f"{name} = {mark}" for name, mark in zip(columns, marks, strict=True))
    condition = " AND ".join(f"{name} = %s" for name in key)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {settings} WHERE {condition}", [*values, *key.values()])  # noqa: S608 - our own names
        assert cursor.rowcount == 1, f"{cursor.rowcount} rows of {table} with {key}"


def plant(
    status: str = "prepared",
    *,
    run_status: str | None = None,
    owner: str | None = None,
    epoch: int | None = None,
    lease_ms: int | None = None,
    claimed_by: str | None = None,
    until_ms: int = TTL_MS,
    due_ms: int | None = None,
    attempts: int | None = None,
    ambiguous: bool | None = None,
    first_ms: int | None = None,
    retry_until_ms: int | None = None,
    losses: int = 0,
    revision: int = 4,
    run_revision: int = 2,
    endpoint_id: uuid.UUID | None = None,
    queued: bool = True,
) -> Planted:
    """A task whose operation stands in `status`.

    `owner` holds the lease for `lease_ms` (TTL_MS when not said). `claimed_by` has a claim on the operation until
    `until_ms`; a dispatching operation is claimed by `owner` (or OWNER, who then holds the lease) when nobody is named.
    """
    run_status = run_status or RUN_FOLLOWS[OperationStatus(status)]
    if status == OperationStatus.DISPATCHING:
        claimed_by = claimed_by or owner or OWNER
        owner = owner or claimed_by
    sent = attempts if attempts is not None else int(status not in ("prepared", "cancelled"))
    if status == OperationStatus.PREPARED and due_ms is None:
        due_ms = -1000
    if first_ms is None and sent:
        first_ms = -MINUTE_MS
    if epoch is None:
        epoch = 3 if owner or sent else 0
    task_id, run_id, event_id = ids.time_ordered(), ids.time_ordered(), ids.time_ordered()
    endpoint_id = endpoint_id or ids.time_ordered()
    digest = hashlib.sha256(run_id.bytes).digest()
    insert(
        "ledger_task", task_id=task_id, tenant_id=TENANT, event_id=event_id, endpoint_id=endpoint_id,
        active_run_id=run_id,
    )  # fmt: skip
    insert("ledger_run", run_id=run_id, task_id=task_id, status=str(run_status), reason="submit", revision=run_revision)
    insert(
        "ledger_lease", run_id=run_id, owner=owner, epoch=epoch,
        acquired_at=from_now(-MINUTE_MS) if owner else None,
        expires_at=from_now((TTL_MS if lease_ms is None else lease_ms) if owner else -HOUR_MS),
    )  # fmt: skip
    key = insert(
        "ledger_operation", "operation_key", run_id=run_id, step_id="deliver", tool="webhook", request_digest=digest,
        request_ref=event_id, status=status, due_at=from_now(due_ms), dispatch_owner=claimed_by,
        dispatch_epoch=epoch if claimed_by else None, dispatch_until=from_now(until_ms if claimed_by else None),
        attempts=sent, losses=losses,
        first_dispatched_at=from_now(first_ms), dispatched_at=from_now(first_ms),
        ambiguous=status == "unknown" if ambiguous is None else ambiguous, retry_until=from_now(retry_until_ms),
        revision=revision,
    )  # fmt: skip
    if queued and status in OPERATION_UNSETTLED:
        insert(
            "ledger_dispatch", operation_key=key, run_id=run_id, tenant_id=TENANT, endpoint_id=endpoint_id,
            due_at=from_now(due_ms), until=from_now(until_ms if claimed_by else None),
            unknown_since=from_now(-MINUTE_MS) if status == "unknown" else None,
        )  # fmt: skip
    return Planted(task_id, run_id, key, event_id, endpoint_id, digest)


def stand_in_line(planted: Planted) -> None:
    """It was put in line when it was accepted."""
    change("ledger_task", {"task_id": planted.task_id}, in_line=True)
    if queued(planted):
        change("ledger_dispatch", {"operation_key": planted.operation_key}, in_line=True)


def row(table: str, **key: Any) -> dict[str, Any]:
    """One whole row, by column."""
    condition = " AND ".join(f"{name} = %s" for name in key)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE {condition}", list(key.values()))  # noqa: S608 - our own names
        found = cursor.fetchall()
        assert len(found) == 1, f"{len(found)} rows of {table} with {key}"
        return dict(zip([column.name for column in cursor.description or ()], found[0], strict=True))


def operation(planted: Planted) -> dict[str, Any]:
    """The operation's row."""
    return row("ledger_operation", operation_key=planted.operation_key)


def run(planted: Planted) -> dict[str, Any]:
    """The run's row."""
    return row("ledger_run", run_id=planted.run_id)


def lease(planted: Planted) -> dict[str, Any]:
    """The lease's row."""
    return row("ledger_lease", run_id=planted.run_id)


def queued(planted: Planted) -> dict[str, Any] | None:
    """The operation's place in the queue; None when it has none."""
    found = rows("ledger_dispatch", operation_key=planted.operation_key)
    return found[0] if found else None


def rows(table: str, **key: Any) -> list[dict[str, Any]]:
    """Whole rows, by column, in the order in which they were written."""
    condition = " AND ".join(f"{name} = %s" for name in key) or "true"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE {condition} ORDER BY 1", list(key.values()))  # noqa: S608 - our own names
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, found, strict=True)) for found in cursor.fetchall()]


def everything(*, but: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    """Every row of the ledger, whole: what must be equal before and after a write that was refused."""
    return {table: rows(table) for table in TABLES if table not in but}


def empty() -> None:
    """Remove every row of the ledger."""
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(TABLES)}")


def expire_lease(planted: Planted, ms: int = -1000) -> None:
    """The lease ran out `-ms` ago."""
    change("ledger_lease", {"run_id": planted.run_id}, expires_at=from_now(ms))


def expire_claim(planted: Planted, ms: int = -1000) -> None:
    """Claim and lease ran out `-ms` ago."""
    expire_lease(planted, ms)
    change("ledger_operation", {"operation_key": planted.operation_key}, dispatch_until=from_now(ms))
    change("ledger_dispatch", {"operation_key": planted.operation_key}, until=from_now(ms))


def claim_of(planted: Planted) -> Claimed:
    """The claim that is on record for a planted operation, as its owner would hold it."""
    seen, held, of = operation(planted), lease(planted), run(planted)
    return Claimed(
        planted.operation_key, planted.run_id, planted.task_id, TENANT, planted.endpoint_id, planted.event_id,
        planted.digest, seen["step_id"], seen["effect_version"], seen["status"], seen["revision"], seen["attempts"],
        seen["ambiguous"], seen["first_dispatched_at"], seen["dispatched_at"], held["epoch"], held["expires_at"],
        of["revision"],
    )  # fmt: skip


def term_of(planted: Planted) -> Term:
    """The term that is on record."""
    held = lease(planted)
    return Term(planted.run_id, held["owner"], held["epoch"], held["expires_at"])
