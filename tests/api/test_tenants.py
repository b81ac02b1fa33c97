"""`/v1/tenants`: made by the operator, read and changed by whoever may, never seen by another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(mine: Caller) -> Caller:
    return rows.caller(tenant=None)


def test_a_tenant_is_made_with_an_id_that_was_chosen_or_one_that_is_made(operator: Caller) -> None:
    chosen = operator.post("/v1/tenants", {"id": "acme", "name": "Acme", "unknown_types": "refuse"})
    assert chosen.status_code == 201
    assert chosen["Location"] == "/v1/tenants/acme"
    shown = chosen.json()
    assert (shown["id"], shown["name"], shown["unknown_types"]) == ("acme", "Acme", "refuse")
    read = operator.get("/v1/tenants/acme")
    assert (read.json(), read["ETag"]) == (shown, chosen["ETag"])
    made = operator.post("/v1/tenants", {"name": "Another"}).json()
    assert made["id"].startswith("ten_")
    assert made["unknown_types"] is None
    event = operator.post("/v1/events", {"type": "a", "data": 1}, Relay_Tenant=made["id"])
    assert event.status_code == 202


def test_an_id_that_is_taken_is_a_conflict_and_changes_nothing(operator: Caller) -> None:
    operator.post("/v1/tenants", {"id": "acme", "name": "Acme"})
    answer = operator.post("/v1/tenants", {"id": "acme", "name": "Somebody else"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert operator.get("/v1/tenants/acme").json()["name"] == "Acme"


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("name", {"id": "x"}),
        ("name", {"name": ""}),
        ("name", {"name": "   "}),
        ("name", {"name": "a\0"}),
        ("name", {"name": "n" * 201}),
        ("id", {"id": "Acme", "name": "x"}),
        ("id", {"id": "a/b", "name": "x"}),
        ("id", {"id": "", "name": "x"}),
        ("id", {"id": "-a", "name": "x"}),
        ("id", {"id": "a" * 64, "name": "x"}),
        ("id", {"id": "a\n", "name": "x"}),
        ("unknown_types", {"name": "x", "unknown_types": "perhaps"}),
        ("owner", {"name": "x", "owner": "me"}),
    ],
)
def test_a_field_that_cannot_be_is_named(field: str, body: dict[str, Any], operator: Caller) -> None:
    before = rows.row_counts()
    answer = operator.post("/v1/tenants", body)
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, [field])
    assert rows.row_counts() == before


def test_a_change_is_of_what_is_sent_and_an_old_version_is_not_overwritten(operator: Caller) -> None:
    made = operator.post("/v1/tenants", {"id": "acme", "name": "Acme", "unknown_types": "refuse"})
    named = operator("PATCH", "/v1/tenants/acme", {"name": "Acme Ltd"}, If_Match=made["ETag"])
    assert (named.status_code, named.json()["name"], named.json()["unknown_types"]) == (200, "Acme Ltd", "refuse")
    late = operator("PATCH", "/v1/tenants/acme", {"unknown_types": None}, If_Match=made["ETag"])
    assert (late.status_code, late.json()["current"]) == (412, named.json())
    freed = operator("PATCH", "/v1/tenants/acme", {"unknown_types": None}, If_Match=named["ETag"])
    assert (freed.status_code, freed.json()["unknown_types"]) == (200, None)
    same = operator("PATCH", "/v1/tenants/acme", {})
    assert (same.status_code, same["ETag"]) == (200, freed["ETag"])


def test_the_operator_sees_all_page_by_page_and_a_tenant_itself(operator: Caller, mine: Caller) -> None:
    for name in ("b", "a", "c"):
        operator.post("/v1/tenants", {"id": name, "name": name})
    page = operator.get("/v1/tenants?limit=2").json()
    assert [one["id"] for one in page["items"]] == ["a", "b"]
    operator.post("/v1/tenants", {"id": "a-later", "name": "x"})  # before what was shown: it is not met any more
    rest = operator.get(f"/v1/tenants?limit=2&cursor={page['next_cursor']}").json()
    assert [one["id"] for one in rest["items"]] == ["c", "default"]
    assert rest["next_cursor"] is None
    assert [one["id"] for one in mine.get("/v1/tenants").json()["items"]] == ["default"]
    assert mine("PATCH", "/v1/tenants/default", {"name": "Ours"}).json()["name"] == "Ours"


def test_a_tenants_rule_for_unknown_types_counts_before_the_installations(operator: Caller, settings: Any) -> None:
    operator.post("/v1/tenants", {"id": "strict", "name": "x", "unknown_types": "refuse"})
    operator.post("/v1/tenants", {"id": "free", "name": "x"})

    def status(tenant: str) -> int:
        code: int = operator.post("/v1/events", {"type": "a", "data": 1}, Relay_Tenant=tenant).status_code
        return code

    assert (status("strict"), status("free")) == (422, 202)
    settings.RELAY_UNKNOWN_TYPES = "refuse"
    operator("PATCH", "/v1/tenants/strict", {"unknown_types": "accept"})
    assert (status("strict"), status("free")) == (202, 422)
    operator("PATCH", "/v1/tenants/strict", {"unknown_types": None})
    assert status("strict") == 422
