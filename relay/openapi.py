"""What the OpenAPI document says beyond what the routes say themselves."""

from __future__ import annotations

from typing import Any

from deliveries.api import schemas
from deliveries.api.access import TENANT_HEADER, BearerKey
from deliveries.api.errors import CODES
from deliveries.models import DEFAULT_TENANT

COMMAND = "python manage.py export_openapi_schema --api relay.api.api --indent 1 --output docs/openapi.json"

_KEYED: dict[str, list[str]] = {BearerKey.__name__: []}

_TENANT_PARAMETER: dict[str, Any] = {
    "in": "header",
    "name": TENANT_HEADER,
    "required": False,
    "schema": {"type": "string", "default": DEFAULT_TENANT},
    "description": "For an operator's key: the tenant that the request is about.",
}
_REFUSED: dict[str, Any] = {
    "description": "",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_IN_PATHS = {
    "event_id": schemas.EVENT,
    "endpoint_id": schemas.ENDPOINT,
    "delivery_id": schemas.DELIVERY,
    "operation_id": schemas.OPERATION,
    "job_id": schemas.JOB,
    "key_id": schemas.KEY,
    "tenant_id": DEFAULT_TENANT,
    "name": "invoice.paid",
}
"""An example of each id that a path holds: those of the other examples, so that all of them tell one story."""

_FIRST = "$response.body#/items/0/id"
_MAKERS: dict[str, tuple[str, str, str]] = {
    "submit_event": ("202", "event_id", "$response.body#/id"),
    "list_events": ("200", "event_id", _FIRST),
    "create_endpoint": ("201", "endpoint_id", "$response.body#/id"),
    "list_endpoints": ("200", "endpoint_id", _FIRST),
    "create_event_type": ("201", "name", "$response.body#/name"),
    "list_event_types": ("200", "name", "$response.body#/items/0/name"),
    "list_event_deliveries": ("200", "delivery_id", _FIRST),
    "list_deliveries": ("200", "delivery_id", _FIRST),
    "list_operations": ("200", "operation_id", _FIRST),
    "recover_endpoint": ("202", "job_id", "$response.body#/id"),
    "recover_deliveries": ("202", "job_id", "$response.body#/id"),
    "list_jobs": ("200", "job_id", _FIRST),
    "create_tenant": ("201", "tenant_id", "$response.body#/id"),
    "list_tenants": ("200", "tenant_id", _FIRST),
    "create_key": ("201", "key_id", "$response.body#/id"),
    "list_keys": ("200", "key_id", _FIRST),
}
"""Where ids come from: operation -> (status, the parameter that wants it, where it stands in the answer)."""


def finish(document: dict[str, Any]) -> None:
    """Add to every route what all of them have in common: the tenant header and its refusal where a key is needed, when
    each refusal comes, an example of each id, and from where an id is had, where it goes (`links`). A second time it
    changes nothing."""
    _link(document)
    for methods in document["paths"].values():
        for route in methods.values():
            parameters = route["parameters"]
            if _KEYED in route["security"] and all(known["name"] != TENANT_HEADER for known in parameters):
                parameters.append(_TENANT_PARAMETER)
                route["responses"].setdefault(422, dict(_REFUSED))
            for parameter in parameters:
                if parameter["in"] == "path":
                    parameter["example"] = _IN_PATHS[parameter["name"]]
            for status, response in route["responses"].items():
                if int(status) in CODES:
                    response["description"] = CODES[int(status)][1]


def _link(document: dict[str, Any]) -> None:
    """From each answer that tells an id to every route that is about one of its kind."""
    routes = [route for methods in document["paths"].values() for route in methods.values()]
    for route in routes:
        if route["operationId"] not in _MAKERS:
            continue
        status, parameter, place = _MAKERS[route["operationId"]]
        answers = {str(code): answer for code, answer in route["responses"].items()}
        answers[status]["links"] = {
            other["operationId"]: {"operationId": other["operationId"], "parameters": {parameter: place}}
            for other in routes
            if any(known["in"] == "path" and known["name"] == parameter for known in other["parameters"])
        }
