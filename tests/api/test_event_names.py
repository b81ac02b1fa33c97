"""Ids that producers choose, keys beside them, and headers of an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deliveries import event_types
from deliveries.models import Event, EventType
from ledger.models import Clock
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

BODY = {"type": "a", "data": {"n": 1}}
SECRET = "s3cret-value"


def submitted(by: Caller, key: str | None = None, **fields: Any) -> Any:
    return by.post("/v1/events", {**BODY, **fields}, **({} if key is None else {"Idempotency_Key": key}))


@pytest.mark.parametrize(
    "name", ["a", "in_1042:paid~2", "-", "evt_1", "EVT_01990f3a7d527c1e9a445b1f0c6d2e90", "x" * 128]
)
def test_an_event_has_the_id_that_its_producer_chose(name: str, mine: Caller) -> None:
    answer = submitted(mine, id=name)
    assert (answer.status_code, answer.json()["id"]) == (202, name)
    assert mine.get(f"/v1/events/{name}").json()["id"] == name
    assert "Idempotent-Replayed" not in answer


@pytest.mark.parametrize(
    "name", ["", "a.b", "a/b", "a b", "é", "x" * 129, "a\n", "a\0", "evt_" + "0" * 32, 7, ["a"], {"a": 1}, True]
)
def test_an_id_that_may_not_be_chosen_is_named(name: Any, mine: Caller) -> None:
    before = rows.row_counts()
    answer = submitted(mine, id=name)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["id"]
    assert rows.row_counts() == before


def test_the_same_id_and_content_get_the_same_answer_and_other_content_a_conflict(mine: Caller, theirs: Caller) -> None:
    rows.endpoint(mine)
    first = submitted(mine, id="x")
    before = rows.row_counts()
    again = submitted(mine, id="x")
    assert (again.status_code, again.json(), again["Idempotent-Replayed"]) == (202, first.json(), "true")
    changes: list[dict[str, Any]] = [{"data": 2}, {"type": "b"}, {"source": "s"}, {"metadata": {}}]
    for change in (*changes, {"headers": {"X-A": "1"}}, {"deliver_at": "2030-01-01T00:00:00Z"}):
        other = submitted(mine, id="x", **change)
        assert (other.status_code, other.json()["code"]) == (409, "id_conflict"), change
    assert rows.row_counts() == before
    stranger = submitted(theirs, id="x", data=2)
    assert (stranger.status_code, stranger.json()["id"]) == (202, "x"), "another tenant's id is no conflict"
    assert mine.get("/v1/events/x").json()["data"] == {"n": 1}
    assert theirs.get("/v1/events/x").json()["data"] == 2


def test_the_same_content_is_told_by_its_meaning_and_not_by_its_spelling(mine: Caller) -> None:
    first = mine.post("/v1/events", b'{"type":"a","id":"x","data":{"a":1.0,"b":"\\u0041"}}')
    again = mine.post("/v1/events", b'{"id":"x","data": { "b":"A", "a":1 } ,"type":"a"}')
    assert (again.status_code, again.json()) == (202, first.json())
    assert bytes(Event.objects.get().payload) == b'{"a":1.0,"b":"\\u0041"}'


def test_both_names_at_first_and_one_the_second_time(mine: Caller) -> None:
    first = submitted(mine, "k", id="x")
    both, by_id, by_key = submitted(mine, "k", id="x"), submitted(mine, id="x"), submitted(mine, "k")
    assert [one.status_code for one in (first, both, by_id)] == [202, 202, 202]
    assert both.json() == by_id.json() == first.json()
    # Without its id it is another event: it would have got an id of Relay's own.
    assert (by_key.status_code, by_key.json()["code"]) == (409, "idempotency_conflict")
    assert Event.objects.count() == 1


def test_an_id_at_first_and_a_key_beside_it_the_second_time(mine: Caller) -> None:
    first = submitted(mine, id="x")
    again = submitted(mine, "k", id="x")
    assert (again.status_code, again.json()) == (202, first.json())
    assert submitted(mine, "k").json()["id"] != "x", "the key was not spent on what was accepted without it"
    assert Event.objects.count() == 2


def test_a_key_and_an_id_that_name_different_events_are_a_conflict(mine: Caller) -> None:
    submitted(mine, "k")
    submitted(mine, id="x")
    submitted(mine, "l", id="y")
    before = rows.row_counts()
    for key, name in (("k", "x"), ("l", "x"), ("k", "y")):
        answer = submitted(mine, key, id=name)
        assert answer.status_code == 409, (key, name)
        assert answer.json()["code"] in {"id_conflict", "idempotency_conflict"}
    assert rows.row_counts() == before


def test_a_conflict_names_the_event_that_is_in_the_way(mine: Caller) -> None:
    submitted(mine, "k", id="x")
    assert "x" in submitted(mine, "k", data=2).json()["detail"].split()[-5:][0]
    other = submitted(mine, "m")
    assert other.json()["id"] in submitted(mine, "m", data=2).json()["detail"]


def test_what_was_promised_before_its_type_was_archived_is_still_promised(mine: Caller) -> None:
    first = submitted(mine, "k", id="x")
    EventType.objects.create(tenant_id="default", name="a", archived_at=Clock())
    event_types.forget()
    assert submitted(mine, "k", id="x").json() == first.json()
    assert submitted(mine, id="x")["Idempotent-Replayed"] == "true"
    assert submitted(mine, id="x", data=2).status_code == 422
    assert submitted(mine, "other").status_code == 422
    assert Event.objects.count() == 1
    event_types.forget()


@pytest.mark.parametrize("name", ["relay.", "relay.endpoint.disabled", "relay.anything"])
def test_the_types_of_relays_own_events_are_refused_from_producers(name: str, mine: Caller) -> None:
    answer = submitted(mine, type=name)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["type"]
    assert submitted(mine, type="relayed").status_code == 202


def test_headers_are_kept_as_they_were_given(mine: Caller) -> None:
    headers = {"X-Region": "eu", "authorization": "Basic x"}
    event_id = submitted(mine, headers=headers).json()["id"]
    assert mine.get(f"/v1/events/{event_id}").json()["headers"] == headers
    assert submitted(mine, headers={f"X-{n}": "" for n in range(20)}).status_code == 202
    assert submitted(mine, headers={"X-A": "v" * 4_093}).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {f"X-{n}": SECRET for n in range(21)},
        {"X-A": SECRET + "v" * 4_082},
        {"Content-Type": SECRET}, {"webhook-ID": SECRET}, {"Relay-Run-Id": SECRET}, {"Host": SECRET},
        {"Content-Length": SECRET}, {"Transfer-Encoding": SECRET}, {"Proxy-Authorization": SECRET},
        {"X-A": SECRET, "x-a": SECRET},
        {"": SECRET}, {"X A": SECRET}, {"X:A": SECRET}, {"X-É": SECRET}, {"X-A\r\nX-B": SECRET}, {"x" * 101: SECRET},
        {"X-A": SECRET + "\r\nX-B: 1"}, {"X-A": f"{SECRET}\0"}, {"X-A": f" {SECRET}"}, {"X-A": f"{SECRET}é"},
        {"X-A": 1}, {"X-A": None}, {"X-A": [SECRET]}, [SECRET], SECRET,
    ],
    ids=lambda headers: json.dumps(headers)[:40],
)  # fmt: skip
def test_headers_that_cannot_be_sent_are_refused_without_their_values(headers: Any, mine: Caller) -> None:
    before = rows.row_counts()
    answer = submitted(mine, headers=headers)
    assert answer.status_code == 422, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == ["headers"]
    assert SECRET.encode() not in answer.content
    assert rows.row_counts() == before
