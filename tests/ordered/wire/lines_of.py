"""What the journal says about lines: who stood in which, who was claimed when, and who was settled or left by then."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

import psycopg

TERMINAL = frozenset({"succeeded", "failed_final", "cancelled"})
TASKS = """
SELECT operation.operation_key, task.task_id, task.endpoint_id, task.tenant_id, operation.run_id, task.event_id
FROM ledger_task AS task JOIN ledger_operation AS operation ON operation.run_id = task.active_run_id
WHERE task.tenant_id = %(tenant)s ORDER BY operation.operation_key
"""
CHANGES = """
SELECT at, "table", new ->> 'operation_key', new ->> 'task_id', new ->> 'status',
       old ->> 'dispatch_owner' IS NULL AND new ->> 'dispatch_owner' IS NOT NULL, (new ->> 'in_line')::boolean
FROM journal WHERE "table" IN ('ledger_operation', 'ledger_task') AND op = 'UPDATE' ORDER BY seq
"""


@dataclass(slots=True)
class Place:
    """One operation that stood in line."""

    key: int
    task_id: str
    endpoint_id: uuid.UUID
    operation_id: str
    event_id: uuid.UUID
    over_at: datetime | None = None
    """When it was settled, or had left its line."""
    left: bool = False
    claims: int = 0


@dataclass(slots=True)
class Lines:
    """The lines in their order, and every claim that was made past one that held its line."""

    places: dict[uuid.UUID, list[Place]]
    overtaken: list[str] = field(default_factory=list)


def read(dsn: str, tenant: str) -> Lines:
    """The journal in the order in which it was written.

    What is settled before something else is claimed is written down before it too: its writer committed first, and who
    claims looks only afterwards. So of two entries of different rows the order of their numbers may be trusted here.
    """
    with psycopg.connect(dsn) as connection:
        lines: dict[uuid.UUID, list[Place]] = defaultdict(list)
        for key, task_id, endpoint_id, tenant_id, run_id, event_id in connection.execute(TASKS, {"tenant": tenant}):
            place = Place(key, str(task_id), endpoint_id, f"{tenant_id}/{run_id}/deliver/1", event_id)
            lines[endpoint_id].append(place)
        found = Lines(dict(lines))
        by_key = {place.key: place for line in lines.values() for place in line}
        by_task = {place.task_id: place for place in by_key.values()}
        first = dict.fromkeys(lines, 0)
        for at, table, key, task_id, status, claimed, in_line in connection.execute(CHANGES):
            changed = by_task.get(task_id) if table == "ledger_task" else by_key.get(int(key))
            if changed is None:
                continue
            place = changed
            if table == "ledger_task":
                if not in_line and place.over_at is None:
                    place.over_at, place.left = at, True
                continue
            line = lines[place.endpoint_id]
            if claimed:
                place.claims += 1
                while first[place.endpoint_id] < len(line) and line[first[place.endpoint_id]].over_at is not None:
                    first[place.endpoint_id] += 1
                holder = line[first[place.endpoint_id]] if first[place.endpoint_id] < len(line) else None
                if holder is not None and holder.key < place.key and not place.left:
                    found.overtaken.append(f"{place.key} was claimed at {at} while {holder.key} held its line")
            if status in TERMINAL and place.over_at is None:
                place.over_at = at
        return found
