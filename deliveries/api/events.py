"""`/v1/events`: submit, list, read; what became of an event."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from django.conf import settings
from django.db.models import Q
from django.http import HttpResponse
from ninja import Query, Router
from pydantic import Field

from deliveries import ids, models
from deliveries.api import find, pages, present, schemas, statuses, submission
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, refusals
from deliveries.api.submitting import announced, take
from deliveries.api.times import Time
from deliveries.models import Scope
from ledger.models import Operation, Task

router = Router(tags=["Events"])

# An event's id is made in a web process, its created_at by the database: how far their clocks may be apart.
CLOCKS_APART = timedelta(hours=1)

_SUBMIT_DOCUMENTATION = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": submission.BODY,
                "examples": {
                    "invoice paid": {
                        "value": {"type": "invoice.paid", "data": {"invoice": "in_1042", "total": 1290}},
                    },
                    "with an id and a header": {
                        "value": {
                            "type": "invoice.paid",
                            "data": {"invoice": "in_1042", "total": 1290},
                            "id": "in_1042-paid",
                            "headers": {"X-Region": "eu"},
                        },
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

    After 202 it is never lost. The Content-Type is not looked at: the body must be JSON in UTF-8. Receivers get `data`
    as it stands there, from its first byte to its last; the white space around it is not part of it.
    """
    announced(request, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    event = submission.read(request.body, request.auth.tenant_id, request.headers.get(submission.KEY_HEADER))
    (outcome,) = take(request.auth.tenant_id, [event], submission.KEY_HEADER)
    if isinstance(outcome, ApiError):
        raise outcome
    answer = HttpResponse(
        msgspec.json.encode({"id": outcome.id, "deliveries": outcome.deliveries}),
        status=202,
        content_type="application/json; charset=utf-8",
    )
    if outcome.replayed:
        answer["Idempotent-Replayed"] = "true"
    return answer


class EventQuery(pages.PageQuery):
    """Filters of the list of events."""

    type: str | None = Field(None, pattern=f"^{submission.TYPE_FORM}$", description="Exactly this type.")
    since: Time | None = Field(None, description="Accepted at this time or later.")
    until: Time | None = Field(None, description="Accepted before this time.")
    status: schemas.DeliveryStatus | None = Field(
        None, description=f"With a delivery that stands there. {statuses.SHORT_PAGES}"
    )


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
        rows = rows.filter(created_at__gte=query.since, event_id__gte=ids.first_at(query.since - CLOCKS_APART))
    if query.until is not None:
        rows = rows.filter(created_at__lt=query.until, event_id__lt=ids.first_at(query.until + CLOCKS_APART))
    if query.status is None:
        found, following = pages.newest_first(rows, "evt", "event_id", query)
    else:
        keys, following = pages.sifted(rows, "evt", "event_id", query, statuses.of_event(query.status))
        found = list(rows.filter(event_id__in=keys).order_by("-event_id"))
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
    """An event with its payload, byte for byte; null when it was expunged. Scope: `read`."""
    event = find.event(request.auth.tenant_id, event_id, payload=True)
    return schemas.Event(
        **present.event_fields(event), data=None if event.expunged_at else msgspec.Raw(bytes(event.payload))
    )


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
