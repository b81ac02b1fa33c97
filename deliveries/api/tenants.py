"""`/v1/tenants`: the customers of the producer."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import event_types, models
from deliveries.api import etags, pages, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, Error, invalid_field, not_found, refusals
from deliveries.models import DEFAULT_TENANT, Scope
from ledger.models import Clock

router = Router(tags=["Tenants"])

ID_FORM = r"[a-z0-9][a-z0-9_-]{0,62}"
NAME_LENGTH = 200

Rule = Literal["accept", "refuse"]


class TenantChange(BaseModel):
    """The fields to change; the others stay."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"unknown_types": "refuse"}]})

    name: str = Field("", min_length=1, max_length=NAME_LENGTH)
    unknown_types: Rule | None = Field(
        None, description="What becomes of events of types that nobody described; null: as the installation says."
    )


class TenantNew(TenantChange):
    """A tenant to make."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "acme", "name": "Acme"}]})

    id: str | None = Field(
        None, pattern=f"^{ID_FORM}$", description="It is part of every id of its operations. Null: one is made."
    )
    name: str = Field(min_length=1, max_length=NAME_LENGTH)


class Tenant(BaseModel):
    """A customer of the producer; owns endpoints and events."""

    id: str = Field(examples=[DEFAULT_TENANT])
    name: str
    unknown_types: Rule | None
    created_at: datetime
    updated_at: datetime


class TenantPage(schemas.Page):
    items: list[Tenant]


class TenantChanged(Error):
    """It was changed since it was read."""

    current: Tenant


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: TenantPage, **refusals(422)},
    summary="List tenants",
    operation_id="list_tenants",
)
def list_tenants(request: Request, query: Query[pages.PageQuery]) -> TenantPage:
    """Every tenant by its id, for an operator's key; for a tenant's key, itself. Scope: `read`."""
    rows = _visible(request)
    if query.cursor is not None:
        (last,) = pages.decode("ten", query.cursor, str)
        rows = rows.filter(tenant_id__gt=last)
    some = list(rows.order_by("tenant_id")[: query.limit + 1])
    found, following = pages.cut(some, query.limit, lambda row: pages.encode("ten", row.tenant_id))
    return TenantPage(items=[_item(row) for row in found], next_cursor=following)


@router.post(
    "",
    auth=needs(Scope.ADMIN),
    response={201: Tenant, **refusals(400, 409, 413, 422)},
    summary="Make a tenant",
    operation_id="create_tenant",
)
def create_tenant(request: Request, response: HttpResponse, tenant: TenantNew) -> Status[Tenant]:
    """Make a tenant. It takes an operator's key. Scope: `admin`."""
    request.auth.must_operate("Making a tenant")
    _check(tenant)
    tenant_id = tenant.id or f"ten_{uuid.uuid4().hex}"
    try:
        with transaction.atomic():
            models.Tenant.objects.create(
                tenant_id=tenant_id, name=tenant.name, unknown_types=tenant.unknown_types or ""
            )
    except IntegrityError as taken:
        raise ApiError(409, f"There is a tenant {tenant_id} already.") from taken
    row = models.Tenant.objects.get(pk=tenant_id)
    response["Location"] = f"/v1/tenants/{tenant_id}"
    etags.show(response, row.updated_at)
    return Status(201, _item(row))


@router.get(
    "/{tenant_id}",
    auth=needs(Scope.READ),
    response={200: Tenant, **refusals(404)},
    summary="Read a tenant",
    operation_id="get_tenant",
)
def get_tenant(request: Request, response: HttpResponse, tenant_id: str) -> Tenant:
    """A tenant; for a tenant's key, itself. Scope: `read`."""
    row = found(request, tenant_id)
    etags.show(response, row.updated_at)
    return _item(row)


@router.patch(
    "/{tenant_id}",
    auth=needs(Scope.ADMIN),
    response={200: Tenant, **refusals(400, 404, 413, 422), 412: TenantChanged},
    summary="Change a tenant",
    operation_id="update_tenant",
)
def update_tenant(
    request: Request,
    response: HttpResponse,
    tenant_id: str,
    tenant: TenantChange,
    if_match: etags.IfMatch = None,
) -> Tenant:
    """Change the fields that are sent and no others. Scope: `admin`."""
    _check(tenant)
    sent: dict[str, Any] = tenant.model_dump(exclude_unset=True)
    if "unknown_types" in sent:
        sent["unknown_types"] = sent["unknown_types"] or ""
    with transaction.atomic():
        rows = models.Tenant.objects.filter(pk=found(request, tenant_id).pk)
        row = rows.select_for_update(no_key=True).get()
        try:
            etags.condition(request)(row.updated_at)
        except etags.Changed as old:
            raise etags.refused(_item(row).model_dump()) from old
        if sent:
            rows.update(**sent, updated_at=Clock())
            row = rows.get()
    event_types.forget()
    etags.show(response, row.updated_at)
    return _item(row)


def found(request: Request, tenant_id: str) -> models.Tenant:
    """The tenant of a path, if the key may know of it; 404 otherwise."""
    row = None if "\0" in tenant_id else _visible(request).filter(tenant_id=tenant_id).first()
    if row is None:
        raise not_found("tenant")
    return row


def _visible(request: Request) -> QuerySet[models.Tenant]:
    rows = models.Tenant.objects.all()
    return rows if request.auth.operator else rows.filter(tenant_id=request.auth.tenant_id)


def _check(tenant: TenantChange) -> None:
    if "name" in tenant.model_fields_set and (not tenant.name.strip() or "\0" in tenant.name):
        raise invalid_field("name", "must be text")


def _item(row: models.Tenant) -> Tenant:
    rule: Any = row.unknown_types or None
    return Tenant(
        id=row.tenant_id, name=row.name, unknown_types=rule, created_at=row.created_at, updated_at=row.updated_at
    )
