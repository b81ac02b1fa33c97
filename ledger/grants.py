"""What the runtime role may do with the ledger's tables: the columns that the named statements write, and no others.

A test reads the statements and compares, in both directions. Rows are deleted from the queue alone, which is a pointer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EVERY = ("*",)
"""All columns, for tables that Django's own code writes: it names every column of a row that it inserts."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role that may read a table may also do with it. `secret`: columns that the reader does not see.

    `unread`: the reader sees nothing of the table.
    """

    insert: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: bool = False
    secret: tuple[str, ...] = ()
    unread: bool = False


TABLES: Mapping[str, Rights] = {
    "ledger_task": Rights(
        insert=("task_id", "tenant_id", "event_id", "endpoint_id", "active_run_id"),
        update=("active_run_id", "updated_at"),
    ),
    "ledger_run": Rights(
        insert=("run_id", "task_id", "status", "reason"),
        update=("status", "revision", "checkpoint", "updated_at"),
    ),
    "ledger_lease": Rights(
        insert=("run_id",),
        update=("owner", "epoch", "acquired_at", "expires_at", "updated_at"),
    ),
    "ledger_operation": Rights(
        insert=(
            "operation_key", "run_id", "step_id", "effect_version", "tool", "request_digest", "request_ref", "status",
            "due_at",
        ),
        update=(
            "status", "due_at", "dispatch_owner", "dispatch_epoch", "dispatch_until", "attempts",
            "first_dispatched_at", "dispatched_at", "ambiguous", "losses", "retry_until", "remote_id", "result",
            "revision", "updated_at",
        ),
    ),
    "ledger_dispatch": Rights(
        insert=("operation_key", "run_id", "tenant_id", "endpoint_id", "due_at", "until", "unknown_since"),
        update=("due_at", "until", "unknown_since"),
        delete=True,
    ),
    "ledger_takeover": Rights(insert=("run_id", "epoch", "owner", "previous_owner", "previous_expired_at")),
    "ledger_fenced_write": Rights(
        insert=(
            "statement", "reason", "run_id", "operation_key", "owner", "epoch", "revision", "seen_owner", "seen_epoch",
            "seen_revision", "seen_status", "seen_expires_at", "evidence",
        )
    ),
    "ledger_resolution": Rights(insert=("operation_key", "actor", "decision", "reason", "revision_seen")),
}  # fmt: skip

SEQUENCES = ("ledger_operation_operation_key_seq",)
"""Those that statements draw from by name; the other keys are drawn by the table itself."""

FUNCTIONS = ("ledger_uuid7()",)
