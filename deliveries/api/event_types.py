"""`/v1/event-types`: what the types of events mean, and what their payloads must be like."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import event_types, models
from deliveries.api import etags, pages, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, Error, FieldError, invalid, not_found, refusals
from deliveries.api.submission import OURS, TYPE_FORM, TYPE_RULE
from deliveries.models import Scope
from ledger.models import Clock

router = Router(tags=["Event types"])

DESCRIPTION_LENGTH = 2_000
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["invoice"],
    "properties": {"total": {"type": "integer", "minimum": 0}},
}


class _Given(BaseModel):
    """Names of this API, of which one is taken in Python."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())


class EventTypeChange(_Given):
    """The fields to change; the others stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"description": "An invoice was paid in full."}]})

    description: str = Field("", max_length=DESCRIPTION_LENGTH)
    json_schema: dict[str, Any] | None = Field(
        None, alias="schema", description="A JSON Schema that payloads must keep; null: anything.", examples=[_SCHEMA]
    )
    deprecated: bool = Field(False, strict=True, description="Still accepted; shown as not to be used any more.")


class EventTypeNew(EventTypeChange):
    """A type to describe."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "invoice.overdue", "description": "An invoice was not paid.", "schema": _SCHEMA}]
        }
    )

    name: str = Field(pattern=f"^{TYPE_FORM}$", description=TYPE_RULE)
    every_tenant: bool = Field(
        False, alias="global", strict=True, description="For every tenant; takes an operator's key with `admin`."
    )


class EventType(_Given):
    """What is known of a type."""

    name: str = Field(examples=["invoice.paid"])
    every_tenant: bool = Field(alias="global", description="It is for every tenant.")
    description: str
    json_schema: dict[str, Any] | None = Field(alias="schema")
    deprecated: bool
    archived_at: datetime | None = Field(description="Since then no event of it is accepted.")
    created_at: datetime
    updated_at: datetime


class EventTypePage(schemas.Page):
    items: list[EventType]


class EventTypeChanged(Error):
    """It was changed since it was read."""

    current: EventType


class EventTypeQuery(pages.PageQuery):
    """Filters of the list of types."""

    archived: Literal["false", "true", "all"] = Field("false", description="Archived ones, too or only.")


class Where(BaseModel):
    """Which of two types of one name is meant."""

    model_config = ConfigDict(extra="forbid")

    every_tenant: bool = Field(
        False, alias="global", description="The global one, and not the tenant's own: for an operator's key."
    )


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: EventTypePage, **refusals(422)},
    summary="List event types",
    operation_id="list_event_types",
    by_alias=True,
)
def list_event_types(request: Request, query: Query[EventTypeQuery]) -> EventTypePage:
    """The tenant's own types and the global ones, by name; its own hide global ones of the same name. Scope: `read`."""
    rows = event_types.visible(request.auth.tenant_id)
    if query.archived != "all":
        rows = rows.filter(archived_at__isnull=query.archived == "false")
    if query.cursor is not None:
        (last,) = pages.decode("type", query.cursor, str)
        rows = rows.filter(name__gt=last)
    some = list(rows.order_by("name")[: query.limit + 1])
    found, following = pages.cut(some, query.limit, lambda row: pages.encode("type", row.name))
    return EventTypePage(items=[_item(row) for row in found], next_cursor=following)


@router.post(
    "",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={201: EventType, **refusals(400, 409, 413, 422)},
    summary="Describe an event type",
    operation_id="create_event_type",
    by_alias=True,
)
def create_event_type(request: Request, response: HttpResponse, event_type: EventTypeNew) -> Status[EventType]:
    """Describe a type. From then on events of it must keep its schema. Scope: `endpoints:write`."""
    tenant_id: str | None = request.auth.tenant_id
    if event_type.every_tenant:
        request.auth.must_operate("A global event type")
        tenant_id = None
    problems = _problems(event_type)
    if event_type.name.startswith(OURS):
        problems.append(FieldError(field="name", detail=f"begins with {OURS}, which is for Relay's own events"))
    if problems:
        raise invalid(*problems)
    try:
        with transaction.atomic():
            row = models.EventType.objects.create(
                tenant_id=tenant_id,
                name=event_type.name,
                description=event_type.description,
                schema=event_type.json_schema,
                deprecated=event_type.deprecated,
            )
    except IntegrityError as taken:
        raise ApiError(409, f"{event_type.name} is described already: change it.") from taken
    row = models.EventType.objects.get(pk=row.pk)
    event_types.forget()
    etags.show(response, row.updated_at)
    response["Location"] = f"/v1/event-types/{row.name}"
    return Status(201, _item(row))


@router.get(
    "/{name}",
    auth=needs(Scope.READ),
    response={200: EventType, **refusals(404)},
    summary="Read an event type",
    operation_id="get_event_type",
    by_alias=True,
)
def get_event_type(request: Request, response: HttpResponse, name: str) -> EventType:
    """The tenant's own type of this name, or the global one. Scope: `read`."""
    row = event_types.visible(request.auth.tenant_id).filter(name=name).first() if _nameable(name) else None
    if row is None:
        raise not_found("event type")
    etags.show(response, row.updated_at)
    return _item(row)


@router.patch(
    "/{name}",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: EventType, **refusals(400, 404, 413, 422), 412: EventTypeChanged},
    summary="Change an event type",
    operation_id="update_event_type",
    by_alias=True,
)
def update_event_type(
    request: Request,
    response: HttpResponse,
    name: str,
    event_type: EventTypeChange,
    where: Query[Where],
    if_match: etags.IfMatch = None,
) -> EventType:
    """Change the fields that are sent and no others. Other processes judge by the new schema within two seconds.
    Scope: `endpoints:write`.
    """
    problems = _problems(event_type)
    if problems:
        raise invalid(*problems)
    sent = event_type.model_dump(exclude_unset=True)
    if "json_schema" in sent:
        sent["schema"] = sent.pop("json_schema")
    return _changed(request, response, name, where, **sent)


@router.post(
    "/{name}/archive",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: EventType, **refusals(404, 422), 412: EventTypeChanged},
    summary="Archive an event type",
    operation_id="archive_event_type",
    by_alias=True,
)
def archive_event_type(
    request: Request, response: HttpResponse, name: str, where: Query[Where], if_match: etags.IfMatch = None
) -> EventType:
    """Accept no more events of it. Those that were accepted are delivered all the same. Scope: `endpoints:write`."""
    return _changed(request, response, name, where, archived_at=Clock())


@router.post(
    "/{name}/unarchive",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: EventType, **refusals(404, 422), 412: EventTypeChanged},
    summary="Accept an archived event type again",
    operation_id="unarchive_event_type",
    by_alias=True,
)
def unarchive_event_type(
    request: Request, response: HttpResponse, name: str, where: Query[Where], if_match: etags.IfMatch = None
) -> EventType:
    """Accept events of it again. Scope: `endpoints:write`."""
    return _changed(request, response, name, where, archived_at=None)


def _changed(request: Request, response: HttpResponse, name: str, where: Where, **columns: Any) -> EventType:
    rows = _own(request, name, where)
    with transaction.atomic():
        row = rows.select_for_update(no_key=True).first()
        if row is None:
            raise not_found("event type")
        try:
            etags.condition(request)(row.updated_at)
        except etags.Changed as old:
            raise etags.refused(_item(row).model_dump(by_alias=True)) from old
        if columns:
            if "archived_at" in columns and (row.archived_at is None) == (columns["archived_at"] is None):
                columns = {}  # it is so already, since another time
            else:
                rows.update(**columns, updated_at=Clock())
        row = rows.get()
    event_types.forget()
    etags.show(response, row.updated_at)
    return _item(row)


def _own(request: Request, name: str, where: Where) -> QuerySet[models.EventType]:
    """The type that a change is about: the tenant's own, or the global one for an operator."""
    whose = Q(tenant_id=request.auth.tenant_id)
    if where.every_tenant:
        request.auth.must_operate("A global event type")
        whose = Q(tenant=None)
    return models.EventType.objects.filter(whose, name=name if _nameable(name) else "")


def _problems(event_type: EventTypeChange) -> list[FieldError]:
    problems = []
    if "\0" in event_type.description:
        problems.append(FieldError(field="description", detail="holds a NUL character"))
    if event_type.json_schema is not None:
        try:
            event_types.check(event_type.json_schema)
        except event_types.SchemaRefused as refused:
            problems.append(FieldError(field="schema", detail=str(refused)))
    return problems


def _nameable(name: str) -> bool:
    return "\0" not in name


def _item(row: models.EventType) -> EventType:
    return EventType.model_validate(
        {
            "name": row.name,
            "global": row.tenant_id is None,
            "description": row.description,
            "schema": row.schema,
            "deprecated": row.deprecated,
            "archived_at": row.archived_at,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
        }
    )
