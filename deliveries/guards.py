"""The database's own guard of the records of deliveries. See `ledger/guards.py`, which says how and within what limits.

`python -m deliveries.guards` prints the SQL for a migration.
"""

from __future__ import annotations

import sys

from ledger.guards import Guard, append_only, identity, sql

GUARDS: tuple[Guard, ...] = (
    append_only("event", "deliveries_event"),
    append_only("acknowledgement", "deliveries_acknowledgement"),
    identity(
        "attempt", "deliveries_attempt", "attempt_id", "operation_key", "number", "epoch", "owner", "url",
        "recorded_at",
    ),
    Guard(
        "attempt_learns_once", "deliveries_attempt", "UPDATE",
        "OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL OR NOT NEW.late",
        "only the attempt of a lost worker may learn, late and once, what became of it",
    ),
)  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(sql(GUARDS))
