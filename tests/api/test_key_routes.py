"""`/v1/keys`: shown once, never giving what the maker has not, expiring, rotated, revoked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deliveries import keys
from deliveries.models import ApiKey
from ledger.models import Clock
from tests.api import rows
from tests.api.rows import Caller
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def made(by: Caller, **fields: Any) -> dict[str, Any]:
    answer = by.post("/v1/keys", {"name": "billing", "scopes": ["events:write", "read"], **fields})
    assert answer.status_code == 201, answer.content
    shown: dict[str, Any] = answer.json()
    assert answer["Location"] == f"/v1/keys/{shown['id']}"
    assert answer["Cache-Control"] == "no-store"
    return shown


def test_a_key_works_with_its_scopes_and_its_text_is_shown_once(mine: Caller) -> None:
    shown = made(mine)
    text = shown.pop("key")
    holder = Caller(text)
    assert holder.post("/v1/events", {"type": "a", "data": 1}).status_code == 202
    assert holder.get("/v1/keys").status_code == 403
    read = mine.get(f"/v1/keys/{shown['id']}").json()
    assert read | {"last_used_at": None} == shown
    assert read["last_used_at"] is not None
    assert shown["tenant"] == "default"
    assert shown["created_by"].startswith("a test (key_")
    for path in ("/v1/keys", f"/v1/keys/{shown['id']}"):
        assert text.rpartition("_")[2] not in mine.get(path).content.decode()


def test_when_it_was_last_used_is_known_to_the_minute(mine: Caller) -> None:
    shown = made(mine)
    holder = Caller(shown["key"])

    def used() -> Any:
        keys.forget()
        holder.get("/v1/events")
        return mine.get(f"/v1/keys/{shown['id']}").json()["last_used_at"]

    first = used()
    assert used() == first
    with unguarded():
        ApiKey.objects.filter(lookup=shown["prefix"]).update(last_used_at=Clock() - timedelta(seconds=61))
    assert used() > first


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("name", {"name": ""}),
        ("name", {"name": " "}),
        ("name", {"name": "a\0b"}),
        ("name", {"name": "n" * 201}),
        ("scopes", {"scopes": []}),
        ("scopes.0", {"scopes": ["everything"]}),
        ("expires_at", {"expires_at": "tomorrow"}),
        ("operator", {"operator": "yes"}),
        ("tenant", {"tenant": "other"}),
    ],
)
def test_a_field_that_cannot_be_is_named(field: str, change: dict[str, Any], mine: Caller) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/keys", {"name": "x", "scopes": ["read"], **change})
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, [field])
    assert rows.row_counts() == before


def test_nobody_gives_what_he_has_not(mine: Caller) -> None:
    little = rows.caller("admin", "read")
    before = rows.row_counts()
    refused = little.post("/v1/keys", {"name": "x", "scopes": ["read", "operate"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert "operate" in refused.json()["detail"]
    operators = mine.post("/v1/keys", {"name": "x", "scopes": ["read"], "operator": True})
    assert (operators.status_code, operators.json()["code"]) == (403, "forbidden")
    assert rows.row_counts() == before
    great = made(mine, scopes=["operate"])
    before = rows.row_counts()
    assert little.post(f"/v1/keys/{great['id']}/rotate").status_code == 403
    assert rows.row_counts() == before


def test_an_operator_makes_keys_for_all_and_for_the_tenant_that_it_names(mine: Caller) -> None:
    operator = rows.caller(tenant=None)
    rows.tenant("other")
    assert made(operator, operator=True)["tenant"] is None
    of_other = operator.post("/v1/keys", {"name": "x", "scopes": ["read"]}, Relay_Tenant="other").json()
    assert of_other["tenant"] == "other"
    everyone = {one["tenant"] for one in operator.get("/v1/keys").json()["items"]}
    assert everyone == {None, "default", "other"}
    assert [one["id"] for one in operator.get("/v1/keys", Relay_Tenant="other").json()["items"]] == [of_other["id"]]
    assert operator.get(f"/v1/keys/{of_other['id']}", Relay_Tenant="default").status_code == 404


def test_the_list_is_newest_first_and_stays_right_while_keys_are_made(mine: Caller) -> None:
    names = [made(mine, name=f"n{number}")["id"] for number in range(5)]
    page = mine.get("/v1/keys?limit=2").json()
    made(mine, name="later")
    seen = [one["id"] for one in page["items"]]
    while page["next_cursor"] is not None:
        page = mine.get(f"/v1/keys?limit=2&cursor={page['next_cursor']}").json()
        seen += [one["id"] for one in page["items"]]
    assert seen[:5] == names[::-1]
    assert len(seen) == len(set(seen)) == 6  # with the caller's own


def test_a_key_stops_at_its_expiry(mine: Caller) -> None:
    past = Caller(made(mine, expires_at=in_days(-1))["key"])
    assert past.get("/v1/events").json()["code"] == "key_expired"
    assert Caller(made(mine, expires_at=in_days(1))["key"]).get("/v1/events").status_code == 200


def test_rotated_both_work_until_the_overlap_is_over(mine: Caller) -> None:
    old = made(mine, expires_at=in_days(10))
    answer = mine.post(f"/v1/keys/{old['id']}/rotate", {"overlap_hours": 2})
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    new = answer.json()
    assert new["id"] != old["id"]
    assert {name: new[name] for name in ("name", "scopes", "tenant", "expires_at")} == {
        name: old[name] for name in ("name", "scopes", "tenant", "expires_at")
    }
    for text in (old["key"], new["key"]):
        assert Caller(text).get("/v1/events").status_code == 200
    left = datetime.fromisoformat(mine.get(f"/v1/keys/{old['id']}").json()["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=1, minutes=59) < left <= timedelta(hours=2)
    mine.post(f"/v1/keys/{new['id']}/rotate", {"overlap_hours": 0})
    assert Caller(new["key"]).get("/v1/events").json()["code"] == "key_expired"


def test_a_rotation_never_lengthens_a_life_and_takes_a_day_unless_it_is_said(mine: Caller) -> None:
    short = made(mine, expires_at=in_days(0.5))
    mine.post(f"/v1/keys/{short['id']}/rotate")
    assert mine.get(f"/v1/keys/{short['id']}").json()["expires_at"] == short["expires_at"]
    endless = made(mine)
    mine.post(f"/v1/keys/{endless['id']}/rotate")
    left = datetime.fromisoformat(mine.get(f"/v1/keys/{endless['id']}").json()["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23, minutes=59) < left <= timedelta(hours=24)


@pytest.mark.parametrize("hours", [-1, 721, 1.5, "2", True])
def test_an_overlap_that_cannot_be_is_named(hours: object, mine: Caller) -> None:
    shown = made(mine)
    before = rows.row_counts()
    answer = mine.post(f"/v1/keys/{shown['id']}/rotate", {"overlap_hours": hours})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "overlap_hours")
    assert rows.row_counts() == before


def test_revoked_is_for_good_and_stays_in_the_list(mine: Caller) -> None:
    shown = made(mine)
    assert mine("DELETE", f"/v1/keys/{shown['id']}").status_code == 204
    revoked_at = mine.get(f"/v1/keys/{shown['id']}").json()["revoked_at"]
    assert revoked_at is not None
    assert Caller(shown["key"]).get("/v1/events").json()["code"] == "key_revoked"
    assert mine("DELETE", f"/v1/keys/{shown['id']}").status_code == 204
    assert mine.get(f"/v1/keys/{shown['id']}").json()["revoked_at"] == revoked_at
    over = mine.post(f"/v1/keys/{shown['id']}/rotate")
    assert (over.status_code, over.json()["code"]) == (409, "conflict")
    assert shown["id"] in [one["id"] for one in mine.get("/v1/keys").json()["items"]]


def test_a_key_may_end_itself(mine: Caller) -> None:
    shown = made(mine, scopes=["admin"])
    holder = Caller(shown["key"])
    assert holder("DELETE", f"/v1/keys/{shown['id']}").status_code == 204
    assert holder.get("/v1/keys").status_code == 401
