"""`/v1/endpoints`: receivers' URLs with their filter, retry policy, limits and capability."""

from __future__ import annotations

from typing import Any, Literal, cast

from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import Field

from deliveries import endpoints, ids, reachability
from deliveries.api import endpoint_present, etags, find, pages
from deliveries.api.access import Request, needs
from deliveries.api.endpoint_schemas import Endpoint, EndpointChange, EndpointMade, EndpointNew, EndpointPage
from deliveries.api.errors import ApiError, Error, FieldError, invalid, not_found, refusals
from deliveries.models import Receives, Scope

router = Router(tags=["Endpoints"])

# Columns whose place in a request is another than their name.
_COLUMNS = {
    "verify": "must_verify",
    "order.ordered": "ordered",
    "order.patience": "order_patience",
    "retry.schedule": "retry_schedule",
    "retry.jitter": "retry_jitter",
    "retry.max_age_hours": "retry_max_age_hours",
    "limits.in_flight": "in_flight",
    "limits.timeout_ms": "timeout_ms",
    "limits.connect_timeout_ms": "connect_timeout_ms",
    "rate_limit.per_second": "rate_per_second",
    "rate_limit.burst": "rate_burst",
    "tls.client_certificate": "client_certificate",
    "tls.client_key": "client_key",
    "tls.ca_certificates": "ca_certificates",
    "capability.idempotent": "idempotent",
    "capability.window_hours": "window_hours",
    "capability.query_url": "query_url",
}
_PLACES = {column: place for place, column in _COLUMNS.items()}
_GROUPS = {place.partition(".")[0] for place in _COLUMNS if "." in place}


class EndpointChanged(Error):
    """It was changed since it was read."""

    current: Endpoint


class EndpointQuery(pages.PageQuery):
    """Filters of the list of endpoints."""

    enabled: bool | None = Field(None, description="Enabled, or disabled.")
    receives: Literal["events", "operational", "operational_all"] | None = None


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: EndpointPage, **refusals(422)},
    summary="List endpoints",
    operation_id="list_endpoints",
)
def list_endpoints(request: Request, query: Query[EndpointQuery]) -> EndpointPage:
    """The tenant's endpoints, newest first. Scope: `read`."""
    rows = endpoints.living(request.auth.tenant_id)
    if query.enabled is not None:
        rows = rows.filter(enabled=query.enabled)
    if query.receives is not None:
        rows = rows.filter(receives=query.receives)
    found, following = pages.newest_first(rows, "ep", "endpoint_id", query)
    return EndpointPage(items=endpoint_present.items(found), next_cursor=following)


@router.post(
    "",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={201: EndpointMade, **refusals(400, 413, 422)},
    summary="Make an endpoint",
    operation_id="create_endpoint",
)
def create_endpoint(request: Request, response: HttpResponse, endpoint: EndpointNew) -> Status[EndpointMade]:
    """Make an endpoint. The answer shows its signing secret, once. Scope: `endpoints:write`."""
    if "receives" in endpoint.model_fields_set and endpoint.receives == Receives.OPERATIONAL_ALL.value:
        request.auth.must_operate("An endpoint that hears about every tenant", Scope.ENDPOINTS_WRITE)
    try:
        row, secret = endpoints.create(request.auth.tenant_id, _columns(endpoint))
    except endpoints.EndpointRefused as refused:
        raise invalid(*_errors(refused)) from refused
    response["Location"] = f"/v1/endpoints/{ids.render(ids.ENDPOINT, row.endpoint_id)}"
    response["Cache-Control"] = "no-store"
    etags.show(response, row.updated_at)
    warning = reachability.preview(row.url)
    return Status(201, EndpointMade(**endpoint_present.whole(row), warning=warning, secret=secret))


@router.get(
    "/{endpoint_id}",
    auth=needs(Scope.READ),
    response={200: Endpoint, **refusals(404)},
    summary="Read an endpoint",
    operation_id="get_endpoint",
)
def get_endpoint(request: Request, response: HttpResponse, endpoint_id: str) -> Endpoint:
    """An endpoint, without its secret. Its `ETag` changes with its settings. Scope: `read`."""
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    etags.show(response, row.updated_at)
    return Endpoint(**endpoint_present.whole(row))


@router.patch(
    "/{endpoint_id}",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Endpoint, **refusals(400, 404, 413, 422), 412: EndpointChanged},
    summary="Change an endpoint",
    operation_id="update_endpoint",
)
def update_endpoint(
    request: Request,
    response: HttpResponse,
    endpoint_id: str,
    endpoint: EndpointChange,
    if_match: etags.IfMatch = None,
) -> Endpoint:
    """Change the fields that are sent and no others. Scope: `endpoints:write`.

    With `If-Match`, only when it is still as you read it: otherwise 412, and `current` shows how it is.
    """
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    try:
        changed = endpoints.update(
            request.auth.tenant_id, row.endpoint_id, _columns(endpoint), check=etags.condition(request)
        )
    except etags.Changed as old:
        raise stale(request, endpoint_id) from old
    except endpoints.EndpointRefused as refused:
        raise invalid(*_errors(refused)) from refused
    if changed is None:
        raise not_found("endpoint")
    etags.show(response, changed.updated_at)
    warning = reachability.preview(changed.url) if "url" in endpoint.model_fields_set else None
    return Endpoint(**endpoint_present.whole(changed), warning=warning)


@router.delete(
    "/{endpoint_id}",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={204: None, **refusals(404), 412: EndpointChanged},
    summary="Delete an endpoint",
    operation_id="delete_endpoint",
)
def delete_endpoint(request: Request, endpoint_id: str, if_match: etags.IfMatch = None) -> Status[None]:
    """Delete an endpoint. What was not sent to it yet is cancelled soon after. Scope: `endpoints:write`."""
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    try:
        deleted = endpoints.delete(request.auth.tenant_id, row.endpoint_id, check=etags.condition(request))
    except etags.Changed as old:
        raise stale(request, endpoint_id) from old
    if not deleted:
        raise not_found("endpoint")
    return Status(204, None)


def stale(request: Request, endpoint_id: str) -> ApiError:
    """412 with the endpoint as it is now."""
    now = find.endpoint(request.auth.tenant_id, endpoint_id)
    return etags.refused(Endpoint(**endpoint_present.whole(now)).model_dump())


def _columns(given: EndpointChange) -> endpoints.Changes:
    sent: dict[str, Any] = {}
    for name, value in given.model_dump(exclude_unset=True).items():
        if name not in _GROUPS:
            sent[_COLUMNS.get(name, name)] = value
        elif value is None:
            sent |= {column: None for place, column in _COLUMNS.items() if place.startswith(f"{name}.")}
        else:
            sent |= {_COLUMNS[f"{name}.{inner}"]: inner_value for inner, inner_value in value.items()}
    return cast("endpoints.Changes", sent)


def _errors(refused: endpoints.EndpointRefused) -> list[FieldError]:
    return [
        FieldError(field=_PLACES.get(problem.field, problem.field), detail=problem.detail)
        for problem in refused.problems
    ]
