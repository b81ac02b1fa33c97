"""`/v1/keys`: made, listed, replaced and revoked. A key's text is in the answer that makes it, and nowhere else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Body, Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import ids, keys
from deliveries.api import find, pages, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, invalid_field, refusals
from deliveries.api.times import Time
from deliveries.models import DEFAULT_TENANT, ApiKey, Scope

router = Router(tags=["Keys"])

NAME_LENGTH = 200
LONGEST_OVERLAP = 720


class KeyNew(BaseModel):
    """A key to make: for the tenant that the request is about."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "billing", "scopes": ["events:write", "read"]}]}
    )

    name: str = Field(min_length=1, max_length=NAME_LENGTH, description="Recorded as the author of what it does.")
    scopes: list[Scope] = Field(min_length=1, description="Some of your own.")
    operator: bool = Field(
        False, strict=True, description="For every tenant. It takes an operator's key to make an operator's key."
    )
    expires_at: Time | None = Field(None, description="From then on it is refused; null: never.")


class RotateKey(BaseModel):
    """How long both are good."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"overlap_hours": 24}]})

    overlap_hours: int = Field(
        default=24,
        ge=0,
        le=LONGEST_OVERLAP,
        strict=True,
        description="For so long the old one is still good; 0: it stops at once.",
    )


class Key(BaseModel):
    """A key, without its text."""

    id: str = Field(examples=[schemas.KEY])
    name: str
    prefix: str = Field(description="The part of its text that is no secret.", examples=["k2j4h5g6f7"])
    tenant: str | None = Field(description="Null: an operator's.", examples=[DEFAULT_TENANT])
    scopes: list[str]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")


class KeyMade(Key):
    """A new key with its text: the only time that it is shown."""

    key: str = Field(examples=["rk_…"])


class KeyPage(schemas.Page):
    items: list[Key]


@router.get(
    "",
    auth=needs(Scope.ADMIN),
    response={200: KeyPage, **refusals(422)},
    summary="List keys",
    operation_id="list_keys",
)
def list_keys(request: Request, query: Query[pages.PageQuery]) -> KeyPage:
    """Keys, newest first, also those that are over: the tenant's; for an operator's key without `Relay-Tenant`, all.
    Scope: `admin`.
    """
    found, following = pages.newest_first(_visible(request), "key", "key_id", query)
    return KeyPage(items=[Key(**_fields(row)) for row in found], next_cursor=following)


@router.post(
    "",
    auth=needs(Scope.ADMIN),
    response={201: KeyMade, **refusals(400, 413, 422)},
    summary="Make a key",
    operation_id="create_key",
)
def create_key(request: Request, response: HttpResponse, key: KeyNew) -> Status[KeyMade]:
    """Make a key. The answer shows it, once. Nobody gives what he has not: its scopes are some of your key's, and its
    tenant is yours. Scope: `admin`.
    """
    if not key.name.strip() or "\0" in key.name:
        raise invalid_field("name", "must be text")
    if key.operator:
        request.auth.must_operate("Making an operator's key")
    beyond = sorted(set(key.scopes) - request.auth.scopes)
    if beyond:
        raise ApiError(403, f"Your key lacks the scope {beyond[0]}, and cannot give it.", code="missing_scope")
    tenant_id = None if key.operator else request.auth.tenant_id
    row, text = keys.new_key(
        key.name.strip(), key.scopes, tenant_id, expires_at=key.expires_at, created_by=request.auth.actor
    )
    return Status(201, _made(response, row, text))


@router.get(
    "/{key_id}",
    auth=needs(Scope.ADMIN),
    response={200: Key, **refusals(404)},
    summary="Read a key",
    operation_id="get_key",
)
def get_key(request: Request, key_id: str) -> Key:
    """A key, without its text. Scope: `admin`."""
    return Key(**_fields(_find(request, key_id)))


@router.post(
    "/{key_id}/rotate",
    auth=needs(Scope.ADMIN),
    response={201: KeyMade, **refusals(400, 404, 409, 413, 422)},
    summary="Replace a key",
    operation_id="rotate_key",
)
def rotate_key(
    request: Request,
    response: HttpResponse,
    key_id: str,
    rotate: Body[RotateKey] = RotateKey(),  # noqa: B008
) -> Status[KeyMade]:
    """Make a key like this one, which stops after the overlap. 409 when it is over already. Scope: `admin`."""
    found = _find(request, key_id)
    if not set(found.scopes) <= request.auth.scopes:
        raise ApiError(403, "Your key lacks a scope of this key, and cannot give it.", code="missing_scope")
    try:
        row, text = keys.rotate(found.key_id, timedelta(hours=rotate.overlap_hours), created_by=request.auth.actor)
    except keys.KeyOver as over:
        raise ApiError(409, "It is revoked or expired: make a new one.") from over
    return Status(201, _made(response, row, text))


@router.delete(
    "/{key_id}",
    auth=needs(Scope.ADMIN),
    response={204: None, **refusals(404)},
    summary="Revoke a key",
    operation_id="revoke_key",
)
def revoke_key(request: Request, key_id: str) -> Status[None]:
    """Refuse it from now on, in every process within two seconds. It stays in the list. A key may revoke itself; a
    second time changes nothing. Scope: `admin`.
    """
    keys.revoke(_find(request, key_id).key_id)
    return Status(204, None)


def _visible(request: Request) -> QuerySet[ApiKey]:
    """What the key may see: an operator's every key, or those of the tenant that it names."""
    if request.auth.operator and not request.auth.named:
        return ApiKey.objects.all()
    return ApiKey.objects.filter(tenant_id=request.auth.tenant_id)


def _find(request: Request, text: str) -> ApiKey:
    return find.by_id(_visible(request), ids.KEY, text, "key")


def _made(response: HttpResponse, row: ApiKey, text: str) -> KeyMade:
    response["Location"] = f"/v1/keys/{ids.render(ids.KEY, row.key_id)}"
    response["Cache-Control"] = "no-store"
    return KeyMade(**_fields(row), key=text)


def _fields(row: ApiKey) -> dict[str, Any]:
    return {
        "id": ids.render(ids.KEY, row.key_id),
        "name": row.name,
        "prefix": row.lookup,
        "tenant": row.tenant_id,
        "scopes": row.scopes,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "last_used_at": row.last_used_at,
    }
