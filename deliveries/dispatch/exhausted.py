"""Telling of deliveries that Relay itself has given up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC

from django.db.models import F

from deliveries import ids, operational
from deliveries.models import Endpoint, Event, Receives
from deliveries.operational import Occurrence, Type
from ledger import identity
from ledger.managers.operation import Settled
from ledger.models import Operation
from ledger.outcome import Applied, Rejected
from ledger.states import OperationStatus


def tell_exhausted(answers: Iterable[Applied[Settled] | Rejected], endpoints: Iterable[Endpoint]) -> None:
    """Tell of what failed for good in this transaction, of deliveries to these endpoints. It costs nothing where
    nothing failed, or nobody listens."""
    failed = [
        one.row.operation_key
        for one in answers
        if isinstance(one, Applied) and one.row.status == OperationStatus.FAILED_FINAL
    ]
    ordinary = [row for row in endpoints if row.receives == Receives.EVENTS]
    if failed and any(operational.heard(row.tenant_id) for row in ordinary):
        operational.tell(_occurrences(failed, {row.endpoint_id for row in ordinary}))


def _occurrences(keys: Sequence[int], endpoint_ids: set[object]) -> Iterable[Occurrence]:
    rows = (
        Operation.objects.filter(operation_key__in=keys)
        .select_related("run__task")
        .annotate(failed_at=F("updated_at"))
        .order_by("operation_key")
    )
    events = Event.objects.defer("payload").in_bulk({row.request_ref for row in rows})
    for row in rows:
        task = row.run.task
        if task.endpoint_id not in endpoint_ids:
            continue
        operation_id = identity.compose(task.tenant_id, row.run_id, row.step_id, row.effect_version)
        result = row.result if isinstance(row.result, dict) else {}
        yield Occurrence(
            task.tenant_id,
            Type.DELIVERY_EXHAUSTED,
            operation_id,
            {
                "delivery_id": ids.render(ids.DELIVERY, task.task_id),
                "event_id": str(events[row.request_ref]),
                "event_type": events[row.request_ref].type,
                "endpoint_id": ids.render(ids.ENDPOINT, task.endpoint_id),
                "operation_id": operation_id,
                "attempts": row.attempts,
                "last": result.get("classification"),
                "http_status": result.get("http_status"),
                "failed_at": row.failed_at.astimezone(UTC).isoformat(),
            },
        )
