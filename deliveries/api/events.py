"""`/v1/events`: submit, list, read; what became of an event."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db.models import Q
from django.http import HttpResponse
from ninja import Query, Router
from pydantic import AwareDatetime, Field

from deliveries import ids, models
from deliveries.api import find, pages, present, schemas, submission
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, refusals
from deliveries.models import Scope
from deliveries.submit import FiltersChanging, IdempotencyConflict, submit
from ledger.models import Operation, Task

router = Router(tags=["Events"])

# An event's id is made in a web process, its created_at by the database: how far their clocks may be apart.
CLOCKS_APART = timedelta(hours=1)

_SUBMIT_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["type", "data"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "pattern": f"^{submission.TYPE_FORM}$", "description": submission.TYPE_RULE},
        "data": {"description": "Any JSON. Receivers get these bytes as the body, exactly as they are here."},
        "source": {"type": ["string", "null"], "maxLength": submission.SOURCE_LENGTH},
        "deliver_at": {"type": ["string", "null"], "format": "date-time", "description": "Not before this time."},
        "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    },
}
_SUBMIT_DOCUMENTATION = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _SUBMIT_BODY,
                "examples": {
                    "invoice paid": {
                        "value": {"type": "invoice.paid", "data": {"invoice": "in_1042", "total": 1290}},
                    },
                },
            }
        },
    },
    "parameters": [
        {
            "in": "header",
            "name": submission.KEY_HEADER,
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "Submits only once: the same key and content again get the same answer with "
            "`Idempotent-Replayed: true`, other content gets 409.",
        }
    ],
}


@router.post(
    "",
    auth=needs(Scope.EVENTS_WRITE),
    response={202: schemas.Accepted, **refusals(400, 409, 411, 413, 422)},
    summary="Submit an event",
    operation_id="submit_event",
    openapi_extra=_SUBMIT_DOCUMENTATION,
)
def submit_event(request: Request) -> HttpResponse:
    """Accept an event and queue it for every endpoint that wants its type. Scope: `events:write`.

    After 202 it is never lost. The Content-Type is not looked at: the body must be JSON in UTF-8.
    """
    if not request.headers.get("Content-Length") and request.headers.get("Transfer-Encoding"):
        raise ApiError(411, "Send the body with a Content-Length.")
    event = submission.read(request.body, request.auth.tenant_id, request.headers.get(submission.KEY_HEADER))
    try:
        (outcome,) = submit([event])
    except FiltersChanging as changing:
        raise ApiError(503, f"Nothing was stored: {changing}.", headers={"Retry-After": "1"}) from changing
    if isinstance(outcome, IdempotencyConflict):
        raise ApiError(
            409,
            f"This {submission.KEY_HEADER} was used for {ids.render(ids.EVENT, outcome.event_id)}, "
            "which has other content.",
            code="idempotency_conflict",
        )
    answer = HttpResponse(
        msgspec.json.encode({"id": ids.render(ids.EVENT, outcome.event_id), "deliveries": outcome.deliveries}),
        status=202,
        content_type="application/json; charset=utf-8",
    )
    if outcome.replayed:
        answer["Idempotent-Replayed"] = "true"
    return answer


class EventQuery(pages.PageQuery):
    """Filters of the list of events."""

    type: str | None = Field(None, pattern=f"^{submission.TYPE_FORM}$", description="Exactly this type.")
    since: AwareDatetime | None = Field(None, description="Accepted at this time or later.")
    until: AwareDatetime | None = Field(None, description="Accepted before this time.")


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: schemas.EventPage, **refusals(422)},
    summary="List events",
    operation_id="list_events",
)
def list_events(request: Request, query: Query[EventQuery]) -> schemas.EventPage:
    """The tenant's events, newest first, without their payloads. Scope: `read`."""
    rows = models.Event.objects.filter(tenant_id=request.auth.tenant_id).defer("payload", "digest")
    if query.type is not None:
        rows = rows.filter(type=query.type)
    # The bounds on the id let the index stop where the times end; those on created_at are the exact ones.
    if query.since is not None:
        rows = rows.filter(created_at__gte=query.since, event_id__gte=_first_id(query.since, -CLOCKS_APART))
    if query.until is not None:
        rows = rows.filter(created_at__lt=query.until, event_id__lt=_first_id(query.until, CLOCKS_APART))
    found, following = pages.newest_first(rows, "evt", "event_id", query)
    items = [schemas.EventItem(**present.event_fields(event)) for event in found]
    return schemas.EventPage(items=items, next_cursor=following)


@router.get(
    "/{event_id}",
    auth=needs(Scope.READ),
    response={200: schemas.Event, **refusals(404)},
    summary="Read an event",
    operation_id="get_event",
)
def get_event(request: Request, event_id: str) -> schemas.Event:
    """An event with its payload, byte for byte. Scope: `read`."""
    event = find.event(request.auth.tenant_id, event_id, payload=True)
    return schemas.Event(**present.event_fields(event), data=msgspec.Raw(bytes(event.payload)))


@router.get(
    "/{event_id}/deliveries",
    auth=needs(Scope.READ),
    response={200: schemas.DeliveryPage, **refusals(404, 422)},
    summary="List an event's deliveries",
    operation_id="list_event_deliveries",
)
def list_event_deliveries(request: Request, event_id: str, query: Query[pages.PageQuery]) -> schemas.DeliveryPage:
    """One delivery for each endpoint that wanted the event, newest first. Scope: `read`."""
    event = find.event(request.auth.tenant_id, event_id)
    rows = Task.objects.filter(event_id=event.event_id, tenant_id=request.auth.tenant_id)
    found, following = pages.newest_first(rows, "dlv", "task_id", query)
    items = [schemas.DeliveryItem(**fields) for fields in present.deliveries(found)]
    return schemas.DeliveryPage(items=items, next_cursor=following)


@router.get(
    "/{event_id}/attempts",
    auth=needs(Scope.READ),
    response={200: schemas.AttemptPage, **refusals(404, 422)},
    summary="List an event's attempts",
    operation_id="list_event_attempts",
)
def list_event_attempts(request: Request, event_id: str, query: Query[pages.PageQuery]) -> schemas.AttemptPage:
    """Every request that was made for the event: by operation, then by number, the oldest first. Scope: `read`."""
    event = find.event(request.auth.tenant_id, event_id)
    mine = Operation.objects.filter(
        run__task__event_id=event.event_id, run__task__tenant_id=request.auth.tenant_id
    ).values("operation_key")
    rows = models.Attempt.objects.filter(operation_key__in=mine)
    if query.cursor is not None:
        key, number = pages.decode("att", query.cursor, pages.natural, pages.natural)
        rows = rows.filter(Q(operation_key__gt=key) | Q(operation_key=key, number__gt=number))
    some = list(rows.order_by("operation_key", "number")[: query.limit + 1])
    found, following = pages.cut(some, query.limit, lambda row: pages.encode("att", row.operation_key, row.number))
    own = present.operations_of(request.auth.tenant_id).in_bulk({row.operation_key for row in found})
    items = [present.attempt(row, own[row.operation_key]) for row in found]
    return schemas.AttemptPage(items=items, next_cursor=following)


def _first_id(time: datetime, shift: timedelta) -> uuid.UUID:
    """The least version 7 UUID of the millisecond `time + shift`."""
    milliseconds = int((time.timestamp() + shift.total_seconds()) * 1000)
    return uuid.UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)
