"""The one shape of every error, and the documentation."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from tests.api import rows
from tests.api.rows import Caller


def shaped(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, checked for its shape."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"].startswith("application/json")
    body: dict[str, Any] = answer.json()
    assert {"code", "detail"} <= set(body)
    assert isinstance(body["code"], str)
    assert isinstance(body["detail"], str)
    for error in body.get("errors", ()):
        assert set(error) == {"field", "detail"}
    return body


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/events/a/b/c", "/v1/events/", "/v1/%00"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "OPTIONS"])
def test_an_unknown_route_is_not_found_in_our_shape(path: str, method: str, mine: Caller) -> None:
    shaped(mine(method, path), 404)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/events", "GET, POST"),
        ("POST", "/v1/events/evt_x", "GET"),
        ("PUT", "/v1/endpoints/ep_x", "DELETE, GET, PATCH"),
        ("GET", "/v1/operations/a/b/c/1/resolve", "POST"),
        ("DELETE", "/v1/deliveries", "GET"),
    ],
)
def test_a_method_that_is_not_taken_is_refused_with_those_that_are(
    method: str, path: str, allowed: str, mine: Caller
) -> None:
    answer = mine(method, path)
    shaped(answer, 405)
    assert answer["Allow"] == allowed


class Unread:
    """A request body that must not be read."""

    def read(self, *args: object) -> bytes:
        raise AssertionError("the body was read although its length alone refuses it")

    readline = __iter__ = read


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/events", "/v1/endpoints"])
def test_a_body_that_is_too_large_is_refused_unread(path: str, mine: Caller) -> None:
    request: dict[str, Any] = {
        "CONTENT_LENGTH": str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1),
        "wsgi.input": Unread(),
    }
    answer = mine.client.generic("POST", path, headers=mine.headers, **request)
    shaped(answer, 413)


@pytest.mark.django_db
def test_a_body_without_a_length_is_refused(mine: Caller) -> None:
    answer = mine.client.generic("POST", "/v1/events", headers={**mine.headers, "Transfer-Encoding": "chunked"})
    shaped(answer, 411)


@pytest.mark.django_db(transaction=True)
def test_a_lost_database_is_answered_as_unavailable(mine: Caller) -> None:
    parameters = connection.get_connection_params()
    known = ("dbname", "user", "password", "host", "port")
    with psycopg.connect(**{key: parameters[key] for key in known if parameters.get(key)}, autocommit=True) as other:
        pid = connection.connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    try:
        body = shaped(mine.post("/v1/events", {"type": "a", "data": 1}), 503)
    finally:
        connection.close()
    assert body["code"] == "unavailable"
    assert mine.post("/v1/events", {"type": "a", "data": 1}).status_code == 202


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/events", "/v1/endpoints", "/v1/deliveries", "/v1/operations"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=many", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 400, "cursor"),
        ("cursor=ZXZ0OjE6Mjoz", "cursor"),
        ("cursor=b3A6LTE", "cursor"),
    ],
)
def test_a_bad_page_is_named(path: str, query: str, field: str, mine: Caller) -> None:
    body = shaped(mine.get(f"{path}?{query}"), 422)
    assert [error["field"] for error in body["errors"]] == [field]


@pytest.mark.django_db
def test_a_cursor_of_another_list_is_named(mine: Caller) -> None:
    rows.endpoint(mine)
    rows.event(mine)
    rows.event(mine)
    cursor = mine.get("/v1/events?limit=1").json()["next_cursor"]
    for path in ("/v1/endpoints", "/v1/deliveries", "/v1/operations"):
        shaped(mine.get(f"{path}?cursor={cursor}"), 422)


@pytest.mark.django_db
def test_every_route_documents_its_errors_and_says_which_scope_it_needs(mine: Caller) -> None:
    schema = Caller().get("/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    signed = schema["paths"].pop("/v1/acknowledgements")["post"]
    assert signed["security"] == [{"EndpointSignature": []}]
    assert {"400", "401", "409", "413", "422", "503"} <= set(signed["responses"])
    assert [known["name"] for known in signed["parameters"]] == ["webhook-id", "webhook-timestamp"]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            assert {"401", "403", "503"} <= set(route["responses"]), (method, path)
            assert "Scope: `" in route["description"]
            assert route["security"] == [{"BearerKey": []}]
            if "{" in path:
                assert "404" in route["responses"]
    assert Caller().get("/v1/docs").status_code == 200


@pytest.mark.django_db
def test_the_examples_in_the_documentation_work(mine: Caller) -> None:
    schema = mine.get("/v1/openapi.json").json()
    documented = schema["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/json"]
    for example in documented["examples"].values():
        assert mine.post("/v1/events", example["value"]).status_code == 202
    models = schema["components"]["schemas"]
    for new in models["EndpointNew"]["examples"]:
        made = mine.post("/v1/endpoints", new)
        assert made.status_code == 201, made.content
    for change in models["EndpointChange"]["examples"]:
        assert mine("PATCH", made["Location"], change).status_code == 200
    for auth in models["AuthIn"]["examples"]:
        assert mine("PATCH", made["Location"], {"auth": auth}).status_code == 200
    operation = rows.unknown(mine)
    (decision,) = models["Resolve"]["examples"]
    decision["revision"] = mine.get(f"/v1/operations/{operation}").json()["revision"]
    assert mine.post(f"/v1/operations/{operation}/resolve", decision).status_code == 200
