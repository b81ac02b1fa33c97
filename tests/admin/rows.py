"""Rows for the admin's tests, planted by plain SQL: the ORM refuses to write them, and the times are in the past."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from deliveries import ids
from tests.support.database import unguarded

OWNER = "worker-a/4711/5f0c2d"
RIVAL = "worker-b/4712/9a1e77"
HOSTILE = '<script>alert("x")</script>\u202eevil\u202c<img src=x onerror=alert(1)>'

RUN_OF = {
    "pending": ("pending", "prepared"),
    "retrying": ("running", "prepared"),
    "sending": ("running", "dispatching"),
    "unknown": ("running", "unknown"),
    "delivered": ("succeeded", "succeeded"),
    "failed": ("failed", "failed_final"),
    "cancelled": ("cancelled", "cancelled"),
}


@dataclass(frozen=True, slots=True)
class Planted:
    """The keys of one planted delivery."""

    task_id: uuid.UUID
    run_id: uuid.UUID
    event_id: uuid.UUID
    endpoint_id: uuid.UUID
    operation_key: int


def now() -> datetime:
    """This machine's clock: the test database runs on it too."""
    return datetime.now(UTC)


def insert(table: str, returning: str | None = None, **columns: Any) -> Any:
    """One row of `table`; the value of column `returning`. JSON columns take dicts and lists of pairs."""
    values = [json.dumps(v) if isinstance(v, dict | list) and not _is_array(n) else v for n, v in columns.items()]
    names = ", ".join(columns)
    marks = ", ".join(["%s"] * len(columns))
    answer = f" RETURNING {returning}" if returning else ""
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks}){answer}", values)  # noqa: S608 - our own names
        return cursor.fetchone()[0] if returning else None


def _is_array(column: str) -> bool:
    return column in {"types", "retry_schedule", "scopes"}


def endpoint(**columns: Any) -> uuid.UUID:
    """An endpoint; by default enabled and dropping duplicates."""
    key = ids.time_ordered()
    known: dict[str, Any] = {
        "endpoint_id": key, "tenant_id": "default", "url": "http://127.0.0.1:9/hook", "description": "", "types": [],
        "headers": {}, "secret_sealed": "sealed-secret-text", "enabled": True, "disabled_reason": "",
        "idempotent": True,
        "window_hours": 72, "retry_schedule": [5, 300], "retry_jitter": 0.2, "retry_max_age_hours": 72, "in_flight": 16,
    }  # fmt: skip
    insert("deliveries_endpoint", **(known | columns))
    return key


def event(payload: bytes = b'{"amount": 12}', **columns: Any) -> uuid.UUID:
    """An accepted event."""
    key = ids.time_ordered()
    known: dict[str, Any] = {
        "event_id": key, "tenant_id": "default", "type": "invoice.paid", "payload": payload,
        "digest": hashlib.sha256(payload).digest(), "deliveries": 1,
    }  # fmt: skip
    insert("deliveries_event", **(known | columns))
    return key


def delivery(
    status: str = "delivered",
    *,
    event_id: uuid.UUID | None = None,
    endpoint_id: uuid.UUID | None = None,
    attempts: int | None = None,
    needs_person: bool = True,
    overdue: bool = False,
    age: timedelta = timedelta(hours=2),
    losses: int = 0,
) -> Planted:
    """A delivery in `status`, with its run, lease, operation and place in the queue, but without attempts."""
    made = now() - age
    run_status, operation_status = RUN_OF[status]
    event_id = event_id or event()
    endpoint_id = endpoint_id or endpoint()
    task_id, run_id = ids.time_ordered(), ids.time_ordered()
    sent = attempts if attempts is not None else (0 if status in {"pending", "cancelled"} else 1)
    until = made + timedelta(minutes=1) if overdue else now() + timedelta(hours=1)
    held = status == "sending"
    insert(
        "ledger_task", task_id=task_id, tenant_id="default", event_id=event_id, endpoint_id=endpoint_id,
        active_run_id=run_id, created_at=made,
    )  # fmt: skip
    insert(
        "ledger_run", run_id=run_id, task_id=task_id, status=run_status, reason="submit", created_at=made,
        updated_at=made + timedelta(minutes=5), revision=sent,
    )  # fmt: skip
    insert(
        "ledger_lease", run_id=run_id, owner=OWNER if held else None, epoch=sent,
        acquired_at=made if sent else None, expires_at=until if held else datetime(1970, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    waits = status in {"pending", "retrying"} or (status == "unknown" and not needs_person)
    due = now() + timedelta(minutes=5) if waits else None
    if status in {"pending", "retrying"}:
        due = made
    key = insert(
        "ledger_operation", "operation_key", run_id=run_id, step_id="deliver", tool="webhook",
        request_digest=hashlib.sha256(run_id.bytes).digest(), request_ref=event_id, status=operation_status, due_at=due,
        dispatch_owner=OWNER if held else None, dispatch_epoch=sent if held else None,
        dispatch_until=until if held else None, attempts=sent,
        first_dispatched_at=made if sent else None, dispatched_at=made if sent else None,
        ambiguous=status == "unknown", losses=losses, revision=sent * 2, created_at=made,
    )  # fmt: skip
    if status in {"pending", "retrying", "sending", "unknown"}:
        insert(
            "ledger_dispatch", operation_key=key, run_id=run_id, tenant_id="default", endpoint_id=endpoint_id,
            due_at=due, until=until if held else None,
            unknown_since=made + timedelta(minutes=1) if status == "unknown" else None,
        )  # fmt: skip
    return Planted(task_id, run_id, event_id, endpoint_id, key)


def attempt(planted: Planted, number: int = 1, **columns: Any) -> None:
    """One attempt of the delivery's operation; by default a connection that was reset after the request was sent."""
    started = columns.pop("started_at", now() - timedelta(hours=2) + timedelta(minutes=number))
    known: dict[str, Any] = {
        "operation_key": planted.operation_key, "number": number, "epoch": number, "owner": OWNER,
        "url": "http://127.0.0.1:9/hook", "started_at": started, "ended_at": started + timedelta(milliseconds=340),
        "verdict": "unknown", "classification": "unknown",
        "error": "The connection was reset after the request was sent.",
        "evidence": {"bytes_offered": 512, "request_complete": True, "head_complete": False, "peer": "127.0.0.1:9"},
    }  # fmt: skip
    insert("deliveries_attempt", **(known | columns))


def acknowledgement(planted: Planted, **columns: Any) -> int:
    """The receiver said something beside its answers."""
    known = {
        "operation_key": planted.operation_key, "run_id": planted.run_id, "source": "query", "said": "unknown",
        "covers": 1, "detail": "No trace yet.", "actor": "reconciler", "http_status": 200,
    }  # fmt: skip
    key: int = insert("deliveries_acknowledgement", "acknowledgement_id", **(known | columns))
    return key


def takeover(planted: Planted, epoch: int = 2, **columns: Any) -> int:
    """Another worker took the run's lease over."""
    taken = now() - timedelta(hours=1)
    known = {
        "run_id": planted.run_id, "epoch": epoch, "owner": RIVAL, "previous_owner": OWNER,
        "previous_expired_at": taken - timedelta(seconds=4), "taken_at": taken,
    }  # fmt: skip
    key: int = insert("ledger_takeover", "takeover_id", **(known | columns))
    return key


def fenced_write(planted: Planted, **columns: Any) -> int:
    """A late worker's write was refused."""
    known: dict[str, Any] = {
        "statement": "operation.settle", "reason": "lease_lost", "run_id": planted.run_id,
        "operation_key": planted.operation_key, "owner": OWNER, "epoch": 1, "revision": 1, "seen_owner": RIVAL,
        "seen_epoch": 2, "seen_revision": 2, "seen_status": "unknown", "seen_expires_at": now(),
        "evidence": {"http_status": 200, "body": "taken"}, "refused_at": now() - timedelta(minutes=50),
    }  # fmt: skip
    key: int = insert("ledger_fenced_write", "fenced_write_id", **(known | columns))
    return key


def resolution(planted: Planted, **columns: Any) -> int:
    """A person decided."""
    known = {
        "operation_key": planted.operation_key, "actor": "user:sam", "decision": "retry",
        "reason": "The receiver's log shows no request.", "revision_seen": 1,
    }  # fmt: skip
    key: int = insert("ledger_resolution", "resolution_id", **(known | columns))
    return key


def api_key(**columns: Any) -> uuid.UUID:
    """A key's row."""
    key = ids.time_ordered()
    known: dict[str, Any] = {
        "key_id": key, "name": "billing", "lookup": key.hex[-10:], "secret_hash": b"\x00" * 32,
        "scopes": ["events:write", "read"],
    }  # fmt: skip
    insert("deliveries_api_key", **(known | columns))
    return key
