"""`/v1/endpoints`: receivers' URLs with their filter, retry policy, limits and capability."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import endpoints, ids, models
from deliveries.api import find, pages
from deliveries.api.access import Request, needs
from deliveries.api.errors import FieldError, invalid, not_found, refusals
from deliveries.api.schemas import ENDPOINT, Page
from deliveries.models import Scope

router = Router(tags=["Endpoints"])

# The default of what a client need not send; it is never read, because only fields that were sent count.
_UNSENT: Any = None

_EXAMPLE: dict[str, Any] = {"url": "https://example.com/webhooks", "description": "Billing", "types": ["invoice.*"]}


class _Given(BaseModel):
    """What a client sends: no unknown fields, no silent conversions. Only the fields that were sent count."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RetryIn(_Given):
    """When to try again."""

    schedule: list[int] = Field(default=_UNSENT, description="Seconds between attempts.", examples=[[5, 300, 1800]])
    jitter: float = Field(
        default=_UNSENT, description="0 to 1: the share of itself by which a delay may be longer or shorter."
    )
    max_age_hours: int = Field(default=_UNSENT, description="No try after this many hours.")


class LimitsIn(_Given):
    """How hard the receiver may be called."""

    in_flight: int = Field(default=_UNSENT, description="Requests at the same time.")
    timeout_ms: int | None = Field(default=_UNSENT, description="Of a whole request; null: the installation's default.")


class CapabilityIn(_Given):
    """What the receiver promises."""

    idempotent: bool = Field(default=_UNSENT, description="It drops duplicates by `webhook-id`.")
    window_hours: int = Field(default=_UNSENT, description="For so long.")
    query_url: str | None = Field(default=_UNSENT, description="Answers what became of an operation.")


class EndpointChange(_Given):
    """The fields to change; the others stay. `retry`, `limits` and `capability` are merged, `headers` is replaced."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}]})

    url: str = Field(default=_UNSENT, description="https, and not a private address.")
    description: str = Field(default=_UNSENT)
    types: list[str] = Field(
        default=_UNSENT,
        description="Event types that it wants; `*` stands for any characters or none; case matters. Empty: all.",
    )
    headers: dict[str, str] = Field(default=_UNSENT, description="Sent with every request.")
    enabled: bool = Field(default=_UNSENT)
    retry: RetryIn = Field(default=_UNSENT)
    limits: LimitsIn = Field(default=_UNSENT)
    capability: CapabilityIn = Field(default=_UNSENT)


class EndpointNew(EndpointChange):
    """An endpoint to make."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    url: str = Field(description="https, and not a private address.")
    secret: str = Field(default=_UNSENT, description="`whsec_…`: your own signing secret; without it one is made.")


class Retry(BaseModel):
    schedule: list[int]
    jitter: float
    max_age_hours: int


class Limits(BaseModel):
    in_flight: int
    timeout_ms: int | None


class Capability(BaseModel):
    idempotent: bool
    window_hours: int
    query_url: str | None


class Endpoint(BaseModel):
    """An endpoint. Its secret is never shown again."""

    id: str = Field(examples=[ENDPOINT])
    url: str
    description: str
    types: list[str]
    headers: dict[str, str]
    enabled: bool
    disabled_reason: str
    blocked_until: datetime | None = Field(description="The receiver asked for a pause until then.")
    retry: Retry
    limits: Limits
    capability: Capability
    created_at: datetime
    updated_at: datetime


class EndpointMade(Endpoint):
    """A new endpoint, with its secret: the only time that it is shown."""

    secret: str = Field(examples=["whsec_…"])


class EndpointPage(Page):
    items: list[Endpoint]


# Column by the field's place in a request.
_COLUMNS = {
    "url": "url",
    "description": "description",
    "types": "types",
    "headers": "headers",
    "secret": "secret",
    "enabled": "enabled",
    "retry.schedule": "retry_schedule",
    "retry.jitter": "retry_jitter",
    "retry.max_age_hours": "retry_max_age_hours",
    "limits.in_flight": "in_flight",
    "limits.timeout_ms": "timeout_ms",
    "capability.idempotent": "idempotent",
    "capability.window_hours": "window_hours",
    "capability.query_url": "query_url",
}
_PLACES = {column: place for place, column in _COLUMNS.items()}


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: EndpointPage, **refusals(422)},
    summary="List endpoints",
    operation_id="list_endpoints",
)
def list_endpoints(request: Request, query: Query[pages.PageQuery]) -> EndpointPage:
    """The tenant's endpoints, newest first. Scope: `read`."""
    found, following = pages.newest_first(endpoints.living(request.auth.tenant_id), "ep", "endpoint_id", query)
    return EndpointPage(items=[Endpoint(**_fields(row)) for row in found], next_cursor=following)


@router.post(
    "",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={201: EndpointMade, **refusals(400, 413, 422)},
    summary="Make an endpoint",
    operation_id="create_endpoint",
)
def create_endpoint(request: Request, response: HttpResponse, endpoint: EndpointNew) -> Status[EndpointMade]:
    """Make an endpoint. The answer shows its signing secret, once. Scope: `endpoints:write`."""
    try:
        row, secret = endpoints.create(request.auth.tenant_id, _columns(endpoint))
    except endpoints.EndpointRefused as refused:
        raise invalid(*_errors(refused)) from refused
    response["Location"] = f"/v1/endpoints/{ids.render(ids.ENDPOINT, row.endpoint_id)}"
    return Status(201, EndpointMade(**_fields(row), secret=secret))


@router.get(
    "/{endpoint_id}",
    auth=needs(Scope.READ),
    response={200: Endpoint, **refusals(404)},
    summary="Read an endpoint",
    operation_id="get_endpoint",
)
def get_endpoint(request: Request, endpoint_id: str) -> Endpoint:
    """An endpoint, without its secret. Scope: `read`."""
    return Endpoint(**_fields(find.endpoint(request.auth.tenant_id, endpoint_id)))


@router.patch(
    "/{endpoint_id}",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Endpoint, **refusals(400, 404, 413, 422)},
    summary="Change an endpoint",
    operation_id="update_endpoint",
)
def update_endpoint(request: Request, endpoint_id: str, endpoint: EndpointChange) -> Endpoint:
    """Change the fields that are sent and no others. Scope: `endpoints:write`."""
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    try:
        changed = endpoints.update(request.auth.tenant_id, row.endpoint_id, _columns(endpoint))
    except endpoints.EndpointRefused as refused:
        raise invalid(*_errors(refused)) from refused
    if changed is None:
        raise not_found("endpoint")
    return Endpoint(**_fields(changed))


@router.delete(
    "/{endpoint_id}",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={204: None, **refusals(404)},
    summary="Delete an endpoint",
    operation_id="delete_endpoint",
)
def delete_endpoint(request: Request, endpoint_id: str) -> Status[None]:
    """Delete an endpoint. What was not sent to it yet is cancelled soon after. Scope: `endpoints:write`."""
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    if not endpoints.delete(request.auth.tenant_id, row.endpoint_id):
        raise not_found("endpoint")
    return Status(204, None)


def _columns(given: EndpointChange) -> endpoints.Changes:
    sent: dict[str, Any] = {}
    for name, value in given.model_dump(exclude_unset=True).items():
        if name in ("retry", "limits", "capability"):
            sent |= {_COLUMNS[f"{name}.{inner}"]: inner_value for inner, inner_value in value.items()}
        else:
            sent[_COLUMNS[name]] = value
    return cast("endpoints.Changes", sent)


def _errors(refused: endpoints.EndpointRefused) -> list[FieldError]:
    return [FieldError(field=_PLACES[problem.field], detail=problem.detail) for problem in refused.problems]


def _fields(row: models.Endpoint) -> dict[str, Any]:
    return {
        "id": ids.render(ids.ENDPOINT, row.endpoint_id),
        "url": row.url,
        "description": row.description,
        "types": row.types,
        "headers": row.headers,
        "enabled": row.enabled,
        "disabled_reason": row.disabled_reason,
        "blocked_until": row.blocked_until,
        "retry": Retry(schedule=row.retry_schedule, jitter=row.retry_jitter, max_age_hours=row.retry_max_age_hours),
        "limits": Limits(in_flight=row.in_flight, timeout_ms=row.timeout_ms),
        "capability": Capability(idempotent=row.idempotent, window_hours=row.window_hours, query_url=row.query_url),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
