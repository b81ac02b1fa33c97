"""From rows to what is shown. A function takes a page of rows and adds a fixed number of queries, never one a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Q, QuerySet, Value, When

from deliveries import ids, lines, models, naming
from deliveries.api import schemas
from deliveries.reconcile import quarantined
from ledger import identity
from ledger import models as ledger
from ledger.states import OperationStatus, RunStatus

MOST_ROWS = 1000
"""Of each list inside one answer."""


def event_fields(event: models.Event) -> dict[str, Any]:
    """The fields of an event beside its payload."""
    return {
        "id": str(event),
        "type": event.type,
        "source": event.source,
        "metadata": event.metadata,
        "headers": event.headers,
        "deliver_at": event.deliver_at,
        "idempotency_key": event.idempotency_key,
        "deliveries": event.deliveries,
        "created_at": event.created_at,
        "expunged_at": event.expunged_at,
    }


def operations_of(tenant_id: str) -> QuerySet[ledger.Operation]:
    """The tenant's operations with what showing them needs."""
    return ledger.Operation.objects.filter(run__task__tenant_id=tenant_id).select_related("run__task", "dispatch")


def operation_id(operation: ledger.Operation) -> str:
    """`tenant/run/step/effect_version`."""
    tenant_id = operation.run.task.tenant_id
    return identity.compose(tenant_id, operation.run_id, operation.step_id, operation.effect_version)


def operation_items(found: Sequence[ledger.Operation]) -> list[schemas.OperationItem]:
    """A page of operations: two queries, for those that stand in line and for their events."""
    places = lines.places(_in_line(found))
    known = naming.labels(row.run.task.event_id for row in found)
    return [schemas.OperationItem(**operation_fields(row, places, known)) for row in found]


def _in_line(found: Iterable[ledger.Operation]) -> list[int]:
    """Of operations from `operations_of`, the keys of those that stand in a line."""
    queued = {row.operation_key: getattr(row, "dispatch", None) for row in found}
    return [key for key, pointer in queued.items() if pointer is not None and pointer.in_line]


def operation_fields(
    operation: ledger.Operation, places: Mapping[int, bool], known: Mapping[UUID, naming.Label]
) -> dict[str, Any]:
    """The fields of an operation that came from `operations_of`; `places` from `lines.places`, `known` its event."""
    task = operation.run.task
    queued: ledger.Dispatch | None = getattr(operation, "dispatch", None)
    return {
        "id": operation_id(operation),
        "status": operation.status,
        "revision": operation.revision,
        "run_id": operation.run_id,
        "delivery_id": ids.render(ids.DELIVERY, task.task_id),
        "event_id": known[task.event_id].id,
        "event_type": known[task.event_id].type,
        "endpoint_id": ids.render(ids.ENDPOINT, task.endpoint_id),
        "step_id": operation.step_id,
        "effect_version": operation.effect_version,
        "tool": operation.tool,
        "attempts": operation.attempts,
        "losses": operation.losses,
        "quarantined": quarantined(operation),
        "holds_line": places.get(operation.operation_key, False),
        "due_at": operation.due_at,
        "dispatch_owner": operation.dispatch_owner,
        "dispatch_until": operation.dispatch_until,
        "ambiguous": operation.ambiguous,
        "unknown_since": queued.unknown_since if queued else None,
        "retry_until": operation.retry_until,
        "first_dispatched_at": operation.first_dispatched_at,
        "dispatched_at": operation.dispatched_at,
        "remote_id": operation.remote_id,
        "result": operation.result,
        "created_at": operation.created_at,
        "updated_at": operation.updated_at,
    }


def operations(found: Sequence[ledger.Operation]) -> list[schemas.Operation]:
    """Operations with their attempts, acknowledgements and resolutions: four queries, and one for what is in line."""
    own = {operation.operation_key: operation for operation in found}
    places = lines.places(_in_line(found))
    known = naming.labels(row.run.task.event_id for row in found)
    tried = defaultdict(list)
    rows = models.Attempt.objects.filter(operation_key__in=own).order_by("-operation_key", "-number")[:MOST_ROWS]
    for row in reversed(rows):
        tried[row.operation_key].append(attempt(row, own[row.operation_key]))
    heard = defaultdict(list)
    for word in models.Acknowledgement.objects.filter(operation_key__in=own)[:MOST_ROWS]:
        heard[word.operation_key].append(acknowledgement(word, own[word.operation_key]))
    decided = defaultdict(list)
    for resolution in ledger.Resolution.objects.filter(operation_id__in=own).order_by("-resolution_id")[:MOST_ROWS]:
        decided[resolution.operation_id].append(
            schemas.Resolution(
                actor=resolution.actor,
                decision=resolution.decision,
                reason=resolution.reason,
                revision_seen=resolution.revision_seen,
                decided_at=resolution.decided_at,
            )
        )
    return [
        schemas.Operation(
            **operation_fields(row, places, known),
            attempt_records=tried[key],
            acknowledgements=heard[key],
            resolutions=decided[key],
        )
        for key, row in own.items()
    ]


def acknowledgement(row: models.Acknowledgement, operation: ledger.Operation) -> schemas.Acknowledgement:
    """A receiver's word about an operation."""
    return schemas.Acknowledgement(
        operation_id=operation_id(operation),
        source=row.source,
        said=row.said,
        remote_id=row.remote_id,
        detail=row.detail,
        actor=row.actor,
        http_status=row.http_status,
        received_at=row.received_at,
    )


def attempt(row: models.Attempt, operation: ledger.Operation) -> schemas.Attempt:
    """One attempt of an operation."""
    task = operation.run.task
    body = None if row.response_body is None else bytes(row.response_body).decode("utf-8", "replace")
    return schemas.Attempt(
        number=row.number,
        operation_id=operation_id(operation),
        endpoint_id=ids.render(ids.ENDPOINT, task.endpoint_id),
        delivery_id=ids.render(ids.DELIVERY, task.task_id),
        epoch=row.epoch,
        owner=row.owner,
        url=row.url,
        started_at=row.started_at,
        ended_at=row.ended_at,
        recorded_at=row.recorded_at,
        verdict=row.verdict,
        classification=row.classification,
        http_status=row.http_status,
        response_headers=row.response_headers,
        response_body=body,
        error=row.error,
        evidence=row.evidence,
        late=row.late,
    )


def delivery_status(run_status: str, operation: ledger.Operation | None) -> schemas.DeliveryStatus:
    """One word for users, from the active run and its latest operation.

    The operation goes first: what was sent keeps its own truth even when its run was cancelled.
    """
    match operation.status if operation else None:
        case OperationStatus.DISPATCHING:
            return "sending"
        case OperationStatus.UNKNOWN:
            return "unknown"
        case OperationStatus.SUCCEEDED:
            return "delivered"
        case OperationStatus.FAILED_FINAL:
            return "failed"
        case OperationStatus.CANCELLED:
            return "cancelled"
    match run_status:
        case RunStatus.CANCELLED:
            return "cancelled"
        case RunStatus.FAILED:
            return "failed"
        case RunStatus.SUCCEEDED:
            return "delivered"
    return "retrying" if operation and operation.attempts else "pending"


def deliveries(tasks: Sequence[ledger.Task]) -> list[dict[str, Any]]:
    """The fields of a page of deliveries: three queries, for their events, their active runs and those runs'
    operations, and one more when some of them are ordered."""
    known = naming.labels(task.event_id for task in tasks)
    runs = ledger.Run.objects.in_bulk([task.active_run_id for task in tasks])
    latest: dict[UUID, ledger.Operation] = {}
    # Ascending, so that the newest operation of a run is the one that stays.
    for operation in ledger.Operation.objects.filter(run_id__in=list(runs)).order_by("operation_key"):
        latest[operation.run_id] = operation
    # Only what is ordered can stand in line: most pages need not ask.
    ordered = {task.active_run_id for task in tasks if task.in_line}
    places = lines.places(one.operation_key for one in latest.values() if one.run_id in ordered)
    return [
        _delivery(task, known[task.event_id], runs[task.active_run_id], latest.get(task.active_run_id), places)
        for task in tasks
    ]


def _delivery(
    task: ledger.Task,
    event: naming.Label,
    run: ledger.Run,
    operation: ledger.Operation | None,
    places: Mapping[int, bool],
) -> dict[str, Any]:
    changed = [task.updated_at, run.updated_at]
    shown = None
    if operation is not None:
        changed.append(operation.updated_at)
        shown = identity.compose(task.tenant_id, operation.run_id, operation.step_id, operation.effect_version)
    return {
        "id": ids.render(ids.DELIVERY, task.task_id),
        "event_id": event.id,
        "event_type": event.type,
        "endpoint_id": ids.render(ids.ENDPOINT, task.endpoint_id),
        "status": delivery_status(run.status, operation),
        "run_id": run.run_id,
        "operation_id": shown,
        "attempts": operation.attempts if operation else 0,
        "quarantined": operation is not None and quarantined(operation),
        "in_line": operation is not None and operation.operation_key in places,
        "holds_line": operation is not None and places.get(operation.operation_key, False),
        "due_at": operation.due_at if operation else None,
        "created_at": task.created_at,
        "updated_at": max(changed),
    }


def whole_delivery(task: ledger.Task) -> schemas.Delivery:
    """A delivery's whole life; of each kind of row at most `MOST_ROWS`, the newest."""
    late = Q(lease__owner__isnull=False, lease__expires_at__lte=ledger.Clock())
    runs = (
        ledger.Run.objects.filter(task_id=task.task_id)
        .select_related("lease")
        .annotate(overdue=Case(When(late, then=Value(True)), default=Value(False), output_field=BooleanField()))
        .order_by("-created_at", "-run_id")[:MOST_ROWS]
    )
    shown = [run(row, task.active_run_id, overdue=row.overdue) for row in runs]
    run_ids = [row.run_id for row in shown]
    rows = operations_of(task.tenant_id).filter(run_id__in=run_ids)
    found = list(rows.order_by("-operation_key")[:MOST_ROWS])
    told = operations(found)
    return schemas.Delivery(
        **deliveries([task])[0],
        runs=shown,
        operations=told,
        attempt_records=[one for operation in told for one in operation.attempt_records],
        acknowledgements=[one for operation in told for one in operation.acknowledgements],
        takeovers=takeovers(run_ids),
        fenced_writes=fenced_writes(run_ids, {row.operation_key: operation_id(row) for row in found}),
    )


def run(row: ledger.Run, active_run_id: UUID, *, overdue: bool) -> schemas.Run:
    """A run with its lease, which was selected with it."""
    lease: ledger.Lease | None = getattr(row, "lease", None)
    return schemas.Run(
        run_id=row.run_id,
        active=row.run_id == active_run_id,
        status=row.status,
        revision=row.revision,
        reason=row.reason,
        checkpoint=row.checkpoint,
        lease=None
        if lease is None
        else schemas.Lease(
            owner=lease.owner,
            epoch=lease.epoch,
            acquired_at=lease.acquired_at,
            # A lease that nobody holds has no end that means anything.
            expires_at=lease.expires_at if lease.owner else None,
            overdue=overdue,
        ),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def takeovers(run_ids: Iterable[UUID]) -> list[schemas.Takeover]:
    """Who took these runs over, newest first."""
    rows = ledger.Takeover.objects.filter(run_id__in=list(run_ids)).order_by("-takeover_id")[:MOST_ROWS]
    return [
        schemas.Takeover(
            run_id=row.run_id,
            epoch=row.epoch,
            owner=row.owner,
            previous_owner=row.previous_owner,
            previous_expired_at=row.previous_expired_at,
            taken_at=row.taken_at,
        )
        for row in rows
    ]


def fenced_writes(run_ids: Iterable[UUID], shown: dict[int, str]) -> list[schemas.FencedWrite]:
    """Writes that were refused to these runs or operations (`shown`: key to public id), newest first."""
    about = Q(run_id__in=list(run_ids)) | Q(operation_key__in=list(shown))
    rows = ledger.FencedWrite.objects.filter(about).order_by("-fenced_write_id")[:MOST_ROWS]
    return [
        schemas.FencedWrite(
            statement=row.statement,
            reason=row.reason,
            run_id=row.run_id,
            operation_id=None if row.operation_key is None else shown.get(row.operation_key),
            owner=row.owner,
            epoch=row.epoch,
            revision=row.revision,
            seen_owner=row.seen_owner,
            seen_epoch=row.seen_epoch,
            seen_revision=row.seen_revision,
            seen_status=row.seen_status,
            seen_expires_at=row.seen_expires_at,
            evidence=row.evidence,
            refused_at=row.refused_at,
        )
        for row in rows
    ]
