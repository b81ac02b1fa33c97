"""Who may do what: keys, scopes and tenants, on every route. A refused request stores nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deliveries import keys
from deliveries.models import ApiKey
from ledger.models import Clock
from tests.api import rows
from tests.api.rows import Caller
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

# Every route, with the scope it needs and a body that is good.
RECOVER = {"since": "2026-01-31T09:30:00Z", "dry_run": True}
ROUTES = [
    ("POST", "/v1/events", "events:write", {"type": "a", "data": 1}),
    ("POST", "/v1/events/batch", "events:write", [{"type": "a", "data": 1}]),
    ("GET", "/v1/events", "read", None),
    ("GET", "/v1/events/{event}", "read", None),
    ("GET", "/v1/events/{event}/deliveries", "read", None),
    ("GET", "/v1/events/{event}/attempts", "read", None),
    ("POST", "/v1/events/{event}/replay", "operate", None),
    ("POST", "/v1/events/{event}/expunge", "admin", {"reason": "x"}),
    ("GET", "/v1/endpoints", "read", None),
    ("POST", "/v1/endpoints", "endpoints:write", {"url": rows.URL}),
    ("GET", "/v1/endpoints/{endpoint}", "read", None),
    ("PATCH", "/v1/endpoints/{endpoint}", "endpoints:write", {"description": "changed"}),
    ("DELETE", "/v1/endpoints/{endpoint}", "endpoints:write", None),
    ("POST", "/v1/endpoints/{endpoint}/secret/rotate", "endpoints:write", {"overlap_hours": 0}),
    ("POST", "/v1/endpoints/{endpoint}/test", "endpoints:write", None),
    ("POST", "/v1/endpoints/{endpoint}/enable", "endpoints:write", None),
    ("POST", "/v1/endpoints/{endpoint}/disable", "endpoints:write", {"reason": "x"}),
    ("POST", "/v1/endpoints/{endpoint}/verify", "endpoints:write", None),
    ("POST", "/v1/endpoints/{endpoint}/recover", "operate", RECOVER),
    ("GET", "/v1/event-types", "read", None),
    ("POST", "/v1/event-types", "endpoints:write", {"name": "new.type"}),
    ("GET", "/v1/event-types/{name}", "read", None),
    ("PATCH", "/v1/event-types/{name}", "endpoints:write", {"description": "changed"}),
    ("POST", "/v1/event-types/{name}/archive", "endpoints:write", None),
    ("POST", "/v1/event-types/{name}/unarchive", "endpoints:write", None),
    ("GET", "/v1/deliveries", "read", None),
    ("POST", "/v1/deliveries/recover", "operate", RECOVER),
    ("GET", "/v1/deliveries/{delivery}", "read", None),
    ("POST", "/v1/deliveries/{delivery}/cancel", "operate", None),
    ("POST", "/v1/deliveries/{delivery}/replay", "operate", None),
    ("POST", "/v1/deliveries/{delivery}/move-aside", "operate", {"reason": "x"}),
    ("GET", "/v1/operations", "read", None),
    ("GET", "/v1/operations/{operation}", "read", None),
    ("POST", "/v1/operations/{operation}/resolve", "operate", {"decision": "failed", "reason": "x", "revision": 2}),
    ("POST", "/v1/operations/{operation}/query", "operate", None),
    ("GET", "/v1/jobs", "read", None),
    ("GET", "/v1/jobs/{job}", "read", None),
    ("POST", "/v1/jobs/{job}/cancel", "operate", None),
    ("GET", "/v1/tenants", "read", None),
    ("POST", "/v1/tenants", "admin", {"name": "new"}),
    ("GET", "/v1/tenants/{tenant}", "read", None),
    ("PATCH", "/v1/tenants/{tenant}", "admin", {"name": "changed"}),
    ("POST", "/v1/tenants/{tenant}/expunge", "admin", {"confirm": "default", "reason": "x", "dry_run": True}),
    ("GET", "/v1/keys", "admin", None),
    ("POST", "/v1/keys", "admin", {"name": "new", "scopes": ["admin"]}),
    ("GET", "/v1/keys/{key}", "admin", None),
    ("DELETE", "/v1/keys/{key}", "admin", None),
    ("POST", "/v1/keys/{key}/rotate", "admin", {"overlap_hours": 0}),
    ("GET", "/v1/stats", "read", None),
]
WITHOUT_A_KEY = {("POST", "/v1/acknowledgements")}
"""Signed with an endpoint's secret instead: tests/api/test_acknowledgements.py."""
FOR_OPERATORS = {("POST", "/v1/tenants")}
"""What no tenant's key may do, whatever its scopes."""
REFUSED_AS_IT_STANDS = {
    "/v1/deliveries/{delivery}/replay": 409,
    "/v1/deliveries/{delivery}/move-aside": 409,
    "/v1/operations/{operation}/query": 422,
    "/v1/endpoints/{endpoint}/verify": 409,
}
"""What an unknown operation of an endpoint that has no query URL, is not ordered and needs no verification does not
allow to any key."""
ABOUT_ONE = [route for route in ROUTES if "{" in route[1]]
LISTS = [route[1] for route in ROUTES if route[0] == "GET" and "{" not in route[1] and route[1] != "/v1/stats"]
IN_PATHS = {"name": "name"} | {
    kind: f"{kind}_id" for kind in ("event", "endpoint", "delivery", "operation", "job", "key", "tenant")
}
"""The document's word for each id of a path."""


def named(by: Caller) -> dict[str, str]:
    """Ids that exist for `by`."""
    operation = rows.unknown(by)
    shown = by.get(f"/v1/operations/{operation}").json()
    (tenant,) = by.get("/v1/tenants").json()["items"]
    key = by.post("/v1/keys", {"name": "one more", "scopes": ["admin"]}).json()
    return {
        "tenant": tenant["id"],
        "key": key["id"],
        "name": by.post("/v1/event-types", {"name": f"of.{tenant['id']}"}).json()["name"],
        "job": by.post("/v1/deliveries/recover", RECOVER).json()["id"],
        "operation": operation,
        "event": shown["event_id"],
        "endpoint": shown["endpoint_id"],
        "delivery": shown["delivery_id"],
    }


def test_the_table_of_routes_is_complete(mine: Caller) -> None:
    documented = {
        (method.upper(), path)
        for path, methods in mine.get("/v1/openapi.json").json()["paths"].items()
        for method in methods
    }
    assert documented - WITHOUT_A_KEY == {
        (method, path.format(**{kind: f"{{{word}}}" for kind, word in IN_PATHS.items()}))
        for method, path, _, _ in ROUTES
    }
    assert documented > WITHOUT_A_KEY


@pytest.mark.parametrize(("method", "path", "scope", "body"), ROUTES)
def test_every_route_refuses_a_missing_or_bad_key(
    method: str, path: str, scope: str, body: object, mine: Caller
) -> None:
    ids = named(mine)
    _, wrong = keys.new_key("wrong", ["read"], "default")
    expired_row, expired = keys.new_key("expired", rows.EVERY_SCOPE, "default")
    revoked_row, revoked = keys.new_key("revoked", rows.EVERY_SCOPE, "default")
    with unguarded():
        ApiKey.objects.filter(pk=expired_row.pk).update(expires_at=Clock() - timedelta(days=1))
    ApiKey.objects.filter(pk=revoked_row.pk).update(revoked_at=Clock())
    before = rows.row_counts()
    for text, code in (
        (None, "unauthorized"),
        ("nonsense", "key_unknown"),
        (wrong[:-4] + "AAAA", "key_unknown"),
        (expired, "key_expired"),
        (revoked, "key_revoked"),
    ):
        answer = Caller(text)(method, path.format(**ids), body)
        assert (answer.status_code, answer.json()["code"]) == (401, code)
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert text is None or text not in answer.content.decode()
    basic = Caller(Authorization="Basic dXNlcjpwYXNz")(method, path.format(**ids), body)
    assert basic.status_code == 401
    assert rows.row_counts() == before


@pytest.mark.parametrize(("method", "path", "scope", "body"), ROUTES)
def test_every_route_names_the_scope_that_a_key_lacks(
    method: str, path: str, scope: str, body: object, mine: Caller
) -> None:
    ids = named(mine)
    others = rows.caller(*[other for other in rows.EVERY_SCOPE if other != scope])
    only = rows.caller(scope, tenant=None if (method, path) in FOR_OPERATORS else "default")
    before = rows.row_counts()
    answer = others(method, path.format(**ids), body)
    assert answer.status_code == 403
    assert scope in answer.json()["detail"]
    assert rows.row_counts() == before
    assert only(method, path.format(**ids), body).status_code in (200, 201, 202, 204, REFUSED_AS_IT_STANDS.get(path))


@pytest.mark.parametrize("route", ABOUT_ONE)
def test_another_tenants_id_is_not_found_on_every_route(
    route: tuple[str, str, str, object], mine: Caller, theirs: Caller
) -> None:
    method, path, _, body = route
    ids = named(theirs)
    before, shown = rows.row_counts(), theirs.get(path.format(**ids)) if method != "POST" else None
    answer = mine(method, path.format(**ids), body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert rows.row_counts() == before
    if shown is not None:
        assert theirs.get(path.format(**ids)).content == shown.content


@pytest.mark.parametrize(("method", "path", "scope", "body"), ABOUT_ONE)
def test_an_id_that_does_not_exist_or_is_malformed_is_not_found(
    method: str, path: str, scope: str, body: object, mine: Caller
) -> None:
    run = "01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90"
    absent = {
        "operation": f"default/{run}/deliver/1",
        "tenant": "nobody",
        "name": "nothing.like.it",
        **{name: f"{prefix}_{run.replace('-', '')}" for name, prefix in
           (("event", "evt"), ("endpoint", "ep"), ("delivery", "dlv"), ("job", "job"), ("key", "key"))},
    }  # fmt: skip
    for strange in (absent, *(dict.fromkeys(absent, text) for text in ("x", "evt_", "%00", "a%2Fb%2Fc%2Fd", "-1"))):
        answer = mine(method, path.format(**strange), body)
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize("path", LISTS)
def test_no_list_shows_another_tenants_rows(path: str, mine: Caller, theirs: Caller) -> None:
    ids = named(theirs)
    documented = mine.get("/v1/openapi.json").json()["paths"][path]["get"]["parameters"]
    filters = {one["name"] for one in documented if one["in"] == "query"}
    wanted = [path, *(f"{path}?{name}={ids[kind]}" for kind, name in IN_PATHS.items() if name in filters)]
    if "status" in filters:
        wanted.append(f"{path}?status={'pending' if path == '/v1/jobs' else 'unknown'}")
    for one in wanted:
        shown = mine.get(one)
        assert shown.status_code == 200
        assert not [name for name in ids.values() if f'"{name}"' in shown.content.decode()]
        assert [name for name in ids.values() if f'"{name}"' in theirs.get(one).content.decode()]


def test_stats_count_no_other_tenants_rows(mine: Caller, theirs: Caller) -> None:
    before = mine.get("/v1/stats").json()
    named(theirs)
    assert mine.get("/v1/stats").json() | {"at": None} == before | {"at": None}
    assert theirs.get("/v1/stats").json()["unknown"] == 1


@pytest.mark.parametrize(("method", "path"), sorted(FOR_OPERATORS))
def test_what_is_for_operators_no_tenants_key_may_do(method: str, path: str, mine: Caller) -> None:
    (body,) = (body for one, way, _, body in ROUTES if (one, way) == (method, path))
    before = rows.row_counts()
    answer = mine(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert rows.row_counts() == before


def test_an_operators_key_acts_for_the_tenant_it_names(mine: Caller, theirs: Caller) -> None:
    here, there = rows.event(mine), rows.event(theirs)
    operator = rows.caller(tenant=None)
    assert operator.get(f"/v1/events/{here}").status_code == 200
    assert operator.get(f"/v1/events/{there}").status_code == 404
    assert operator.get(f"/v1/events/{there}", Relay_Tenant="other").status_code == 200
    assert operator.get(f"/v1/events/{here}", Relay_Tenant="other").status_code == 404
    assert operator.get(f"/v1/events/{here}", Relay_Tenant="default").status_code == 200


@pytest.mark.parametrize("name", ["nobody", "", "Default", "a b", "x" * 200, "é"])
def test_a_tenant_that_does_not_exist_is_named(name: str, mine: Caller) -> None:
    before = rows.row_counts()
    answer = rows.caller(tenant=None).post("/v1/events", {"type": "a", "data": 1}, Relay_Tenant=name)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Relay-Tenant"
    assert rows.row_counts() == before | {"ApiKey": before["ApiKey"] + 1}


def test_a_tenants_key_cannot_name_another_tenant(mine: Caller, theirs: Caller) -> None:
    assert mine.get("/v1/events", Relay_Tenant="other").status_code == 403
    assert mine.get("/v1/events", Relay_Tenant="nobody").status_code == 403
    assert mine.get("/v1/events", Relay_Tenant="default").status_code == 200
