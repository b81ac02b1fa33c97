"""What Schemathesis must be told of this API. It loads this by itself (SCHEMATHESIS_HOOKS)."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import Case, HookContext
from schemathesis.core import NOT_SET

SAYS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/endpoints"): {"url": "http://localhost:9/hook"},
    ("POST", "/v1/events"): {"type": "invoice.paid", "data": {}},
    ("POST", "/v1/event-types"): {"name": "invoice.paid"},
    ("POST", "/v1/tenants"): {"id": "acme"},
    ("POST", "/v1/keys"): {"name": "billing", "scopes": ["read"]},
    ("POST", "/v1/deliveries/recover"): {"since": "2026-01-31T09:30:00Z", "dry_run": True},
}
"""Bodies that make something, where what is generated to fit the schema alone would seldom make anything."""


@schemathesis.serializer("application/x-ndjson")
def lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """The text of the lines."""
    return str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook
def map_case(_: HookContext, case: Case[Any]) -> Case[Any]:
    """In a sequence of requests each is about what the one before it told of: what begins it makes something, and all
    are about one tenant."""
    if case.meta is None or case.meta.phase.name.value != "stateful":
        return case
    case.headers.pop("Relay-Tenant", None)
    if case.body is not NOT_SET and (case.method, case.path) in SAYS:
        case.body = SAYS[case.method, case.path]
    if case.method == "GET":
        case.query.clear()
    return case
