"""Whether events are whole: each with as many deliveries as it says, and each delivery with all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

_COUNTS = """
    SELECT coalesce(event.client_id, 'evt_' || replace(event.event_id::text, '-', '')), event.deliveries,
           count(task.task_id), count(run.run_id), count(lease.run_id), count(operation.operation_key),
           count(dispatch.operation_key)
    FROM deliveries_event AS event
    LEFT JOIN ledger_task AS task USING (event_id)
    LEFT JOIN ledger_run AS run ON run.run_id = task.active_run_id AND run.task_id = task.task_id
    LEFT JOIN ledger_lease AS lease ON lease.run_id = run.run_id
    LEFT JOIN ledger_operation AS operation ON operation.run_id = run.run_id
    LEFT JOIN ledger_dispatch AS dispatch ON dispatch.operation_key = operation.operation_key
    WHERE event.tenant_id = %s
    GROUP BY event.event_id
"""
_ORPHANS = """
    SELECT count(*) FROM ledger_task AS task LEFT JOIN deliveries_event AS event USING (event_id)
    WHERE task.tenant_id = %s AND event.event_id IS NULL
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """What there is of an event whose deliveries nobody has begun."""

    deliveries: int
    tasks: int
    runs: int
    leases: int
    operations: int
    pointers: int

    def whole(self) -> bool:
        """Nothing of it is missing, and nothing is there twice."""
        return {self.deliveries} == {self.tasks, self.runs, self.leases, self.operations, self.pointers}


def stored(tenant_id: str) -> dict[str, Stored]:
    """Everything that is stored of a tenant's events, by their ids; no delivery is without its event."""
    with connection.cursor() as cursor:
        cursor.execute(_ORPHANS, [tenant_id])
        assert cursor.fetchone() == (0,), "deliveries without an event"
        cursor.execute(_COUNTS, [tenant_id])
        return {name: Stored(*counts) for name, *counts in cursor.fetchall()}
