"""`/v1/event-types`: described, global or a tenant's own, kept by what is submitted, deprecated, archived."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "integer", "minimum": 0}, "lines": {"type": "array", "items": {"type": "string"}}},
}


@pytest.fixture
def operator(mine: Caller) -> Caller:
    return rows.caller(tenant=None)


def described(by: Caller, name: str = "invoice.paid", *, everywhere: bool = False, **fields: Any) -> Any:
    answer = by.post("/v1/event-types", {"name": name, **({"global": True} if everywhere else {}), **fields})
    assert answer.status_code == 201, answer.content
    return answer


def submit(by: Caller, data: Any, name: str = "invoice.paid") -> Any:
    return by.post("/v1/events", {"type": name, "data": data})


def test_a_type_is_described_and_read_as_it_was(mine: Caller) -> None:
    answer = described(mine, description="An invoice was paid.", schema=SCHEMA)
    shown = answer.json()
    assert answer["Location"] == "/v1/event-types/invoice.paid"
    assert (shown["name"], shown["global"], shown["schema"]) == ("invoice.paid", False, SCHEMA)
    assert (shown["deprecated"], shown["archived_at"]) == (False, None)
    read = mine.get("/v1/event-types/invoice.paid")
    assert (read.json(), read["ETag"]) == (shown, answer["ETag"])
    twice = mine.post("/v1/event-types", {"name": "invoice.paid"})
    assert (twice.status_code, twice.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"total": 1}, None),
        ({"total": 1, "lines": ["a"], "more": None}, None),
        ({}, "data"),
        ([], "data"),
        ({"total": -1}, "data.total"),
        ({"total": "1"}, "data.total"),
        ({"total": 1, "lines": ["a", 2]}, "data.lines.1"),
    ],
)
def test_what_is_submitted_keeps_to_the_schema_or_is_refused_by_its_place(
    data: Any, field: str | None, mine: Caller
) -> None:
    described(mine, schema=SCHEMA)
    before = rows.row_counts()
    answer = submit(mine, data)
    if field is None:
        assert answer.status_code == 202
        return
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, [field])
    assert rows.row_counts() == before


def test_what_is_missing_is_named(mine: Caller) -> None:
    described(mine, schema=SCHEMA)
    (error,) = submit(mine, {}).json()["errors"]
    assert error == {"field": "data", "detail": "does not keep to the schema of its type: required: total is missing"}


def test_the_refusal_does_not_repeat_what_was_submitted(mine: Caller) -> None:
    described(mine, schema={"properties": {"card": {"type": "integer"}}})
    assert "4111" not in submit(mine, {"card": "4111 1111"}).content.decode()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([], "object"),
        ("x", "object"),
        ({"type": "text"}, "no JSON Schema"),
        ({"minimum": "1"}, "no JSON Schema"),
        ({"pattern": "("}, "no JSON Schema"),
        ({"$ref": "https://example.com/schema.json"}, "only references inside"),
        ({"$ref": "file:///etc/passwd"}, "only references inside"),
        ({"$ref": "#/$defs/none"}, "does not hold"),
        ({"description": "x" * 70_000}, "bytes"),
        ({"description": "\0"}, "NUL"),
        ({"allOf": [{}] * 5_001}, "parts"),
    ],
)
def test_a_schema_that_cannot_judge_is_refused_with_the_reason(schema: Any, why: str, mine: Caller) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/event-types", {"name": "a", "schema": schema})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "schema"
    assert why in error["detail"]
    assert rows.row_counts() == before


def test_references_that_multiply_are_refused_when_the_schema_is_saved(mine: Caller) -> None:
    """Thirty lines that come to 2^30 parts when they are followed."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {"type": "object"}}}
    answer = mine.post("/v1/event-types", {"name": "a", "schema": schema})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "schema")


def test_a_schema_may_refer_to_itself(mine: Caller) -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "value": {"type": "integer"}}}
    described(mine, schema=tree)
    assert submit(mine, {"left": {"left": {"value": 1}}}).status_code == 202
    assert submit(mine, {"left": {"left": {"value": "1"}}}).json()["errors"][0]["field"] == "data.left.left.value"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "relay.endpoint.disabled", "é", "a" * 300, 1, None])
def test_a_name_that_cannot_be_is_refused(name: object, mine: Caller) -> None:
    answer = mine.post("/v1/event-types", {"name": name})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name")


def test_a_change_is_of_what_is_sent_and_counts_from_then_on(mine: Caller) -> None:
    made = described(mine, schema=SCHEMA)
    path = "/v1/event-types/invoice.paid"
    assert submit(mine, {}).status_code == 422
    changed = mine("PATCH", path, {"schema": None}, If_Match=made["ETag"])
    assert (changed.status_code, changed.json()["schema"]) == (200, None)
    assert submit(mine, {}).status_code == 202
    late = mine("PATCH", path, {"schema": SCHEMA}, If_Match=made["ETag"])
    assert (late.status_code, late.json()["current"]) == (412, changed.json())
    deprecated = mine("PATCH", path, {"deprecated": True})
    assert (deprecated.json()["deprecated"], deprecated.json()["schema"]) == (True, None)
    assert submit(mine, {}).status_code == 202


def test_archived_no_event_of_it_is_accepted_until_it_is_taken_back(mine: Caller) -> None:
    described(mine)
    archived = mine.post("/v1/event-types/invoice.paid/archive")
    assert archived.json()["archived_at"] is not None
    refused = submit(mine, 1)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "type")
    assert "archived" in refused.json()["errors"][0]["detail"]
    assert mine.get("/v1/event-types").json()["items"] == []
    assert len(mine.get("/v1/event-types?archived=true").json()["items"]) == 1
    again = mine.post("/v1/event-types/invoice.paid/archive")
    assert again.json()["archived_at"] == archived.json()["archived_at"]
    assert mine.post("/v1/event-types/invoice.paid/unarchive").json()["archived_at"] is None
    assert submit(mine, 1).status_code == 202


def test_a_global_type_is_every_tenants_until_one_has_its_own(mine: Caller, theirs: Caller, operator: Caller) -> None:
    described(operator, everywhere=True, schema=SCHEMA)
    for by in (mine, theirs):
        assert by.get("/v1/event-types/invoice.paid").json()["global"] is True
        assert submit(by, {}).status_code == 422
    described(mine, description="ours")
    assert submit(mine, {}).status_code == 202
    assert submit(theirs, {}).status_code == 422
    (shown,) = mine.get("/v1/event-types").json()["items"]
    assert (shown["global"], shown["description"]) == (False, "ours")


def test_only_an_operator_changes_a_global_type(mine: Caller, operator: Caller) -> None:
    described(operator, everywhere=True)
    path = "/v1/event-types/invoice.paid"
    refused = mine.post("/v1/event-types", {"name": "other", "global": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    for method, way in (("PATCH", path), ("POST", f"{path}/archive"), ("POST", f"{path}/unarchive")):
        body = {"description": "x"} if method == "PATCH" else None
        assert mine(method, way, body).status_code == 404
        assert mine(method, f"{way}?global=true", body).status_code == 403
        assert operator(method, way, body).status_code == 404
        assert operator(method, f"{way}?global=true", body).status_code == 200


def test_unknown_types_are_accepted_or_refused_by_the_setting(mine: Caller, settings: Any) -> None:
    described(mine)
    assert submit(mine, 1, "never.described").status_code == 202
    settings.RELAY_UNKNOWN_TYPES = "refuse"
    mine("PATCH", "/v1/event-types/invoice.paid", {"description": "what is remembered is forgotten"})
    refused = submit(mine, 1, "never.described")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "type")
    assert submit(mine, 1).status_code == 202
    batch = [{"type": "never.described", "data": 1}, {"type": "invoice.paid", "data": 2}]
    first, second = mine.post("/v1/events/batch", batch).json()["items"]
    assert (first["status"], second["status"]) == (422, 202)


def test_the_list_is_by_name_and_stays_right_while_types_are_added(mine: Caller, operator: Caller) -> None:
    for name in ("b", "d", "f"):
        described(mine, name)
    described(operator, "c", **{"global": True})
    page = mine.get("/v1/event-types?limit=2").json()
    described(mine, "a")
    described(mine, "e")
    rest = mine.get(f"/v1/event-types?limit=50&cursor={page['next_cursor']}").json()
    assert [one["name"] for one in page["items"] + rest["items"]] == ["b", "c", "d", "e", "f"]
    assert rest["next_cursor"] is None
