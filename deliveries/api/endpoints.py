"""`/v1/endpoints`: receivers' URLs with their filter, retry policy, limits and capability."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpResponse
from ninja import Query, Router, Status

from deliveries import endpoints, ids, reachability
from deliveries.api import endpoint_present, find, pages
from deliveries.api.access import Request, needs
from deliveries.api.endpoint_schemas import Endpoint, EndpointChange, EndpointMade, EndpointNew, EndpointPage
from deliveries.api.errors import FieldError, invalid, not_found, refusals
from deliveries.models import Scope

router = Router(tags=["Endpoints"])

# Columns whose place in a request is another than their name.
_COLUMNS = {
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
_GROUPS = {place.partition(".")[0] for place in _COLUMNS}


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
    try:
        row, secret = endpoints.create(request.auth.tenant_id, _columns(endpoint))
    except endpoints.EndpointRefused as refused:
        raise invalid(*_errors(refused)) from refused
    response["Location"] = f"/v1/endpoints/{ids.render(ids.ENDPOINT, row.endpoint_id)}"
    response["Cache-Control"] = "no-store"
    warning = reachability.preview(row.url)
    return Status(201, EndpointMade(**endpoint_present.whole(row), warning=warning, secret=secret))


@router.get(
    "/{endpoint_id}",
    auth=needs(Scope.READ),
    response={200: Endpoint, **refusals(404)},
    summary="Read an endpoint",
    operation_id="get_endpoint",
)
def get_endpoint(request: Request, endpoint_id: str) -> Endpoint:
    """An endpoint, without its secret. Scope: `read`."""
    return Endpoint(**endpoint_present.whole(find.endpoint(request.auth.tenant_id, endpoint_id)))


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
    warning = reachability.preview(changed.url) if "url" in endpoint.model_fields_set else None
    return Endpoint(**endpoint_present.whole(changed), warning=warning)


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
        if name not in _GROUPS:
            sent[name] = value
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
