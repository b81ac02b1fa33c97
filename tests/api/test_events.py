"""`/v1/events`: what is accepted, what is refused without a trace, and what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from deliveries import ids
from deliveries.models import Event
from ledger.managers.operation import Proof
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

DEEP = b'{"type":"a","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

# body, status, the field that the error names
REFUSED: list[tuple[bytes, int, str | None]] = [
    (b"", 400, None),
    (b"not json", 400, None),
    (b'{"type":"a","data":1', 400, None),
    (b'{"type":"a","data":1} trailing', 400, None),
    (b'{"type":"a","data":NaN}', 400, None),
    (b'{"type":"a","data":01}', 400, None),
    (b'{"type":"a","data":"\xff"}', 400, None),
    (b'{"type":"a","data":"\\ud800"}', 400, None),
    (b"\xff\xfe{\x00}\x00", 400, None),
    (b'{"type":1,"type":"a","data":1}', 400, None),
    (DEEP, 400, None),
    (b'\xef\xbb\xbf{"type":"a","data":1}', 400, None),
    (b'{"type":1,"data":1', 400, None),
    (b'{"type":1, nonsense', 400, None),
    (b'{"type":1,"data":"\\ud800"}', 400, None),
    (DEEP.replace(b'"a"', b"1"), 400, None),
    (b"[]", 400, None),
    (b"null", 400, None),
    (b'"text"', 400, None),
    (b'[{"type":"a","data":1}]', 400, None),
    (b"{}", 422, "type"),
    (b'{"type":"a"}', 422, "data"),
    (b'{"data":1}', 422, "type"),
    (b'{"type":"","data":1}', 422, "type"),
    (b'{"type":"white space","data":1}', 422, "type"),
    (b'{"type":"a\\u0000","data":1}', 422, "type"),
    (b'{"type":"invoice.*","data":1}', 422, "type"),
    (b'{"type":"' + b"a" * 129 + b'","data":1}', 422, "type"),
    (b'{"type":7,"data":1}', 422, "type"),
    (b'{"type":null,"data":1}', 422, "type"),
    (b'{"type":"a","data":1,"id":"a.b"}', 422, "id"),
    (b'{"type":"a","data":1,"id":""}', 422, "id"),
    (b'{"type":"a","data":1,"id":"evt_01990f3a7d527c1e9a445b1f0c6d2e90"}', 422, "id"),
    (b'{"type":"relay.endpoint.disabled","data":1}', 422, "type"),
    (b'{"type":"a","data":1,"headers":{"webhook-id":"x"}}', 422, "headers"),
    (b'{"type":"a","data":1,"headers":{"X-A":"a\\nb"}}', 422, "headers"),
    (b'{"type":"a","data":1,"Type":"b"}', 422, "Type"),
    (b'{"type":"a","data":1,"tenant_id":"other"}', 422, "tenant_id"),
    (b'{"type":"a","data":1,"source":""}', 422, "source"),
    (b'{"type":"a","data":1,"source":"x\\u0000"}', 422, "source"),
    (b'{"type":"a","data":1,"source":7}', 422, "source"),
    (b'{"type":"a","data":1,"source":"' + b"s" * 256 + b'"}', 422, "source"),
    (b'{"type":"a","data":1,"deliver_at":"tomorrow"}', 422, "deliver_at"),
    (b'{"type":"a","data":1,"deliver_at":"2030-01-01T00:00:00"}', 422, "deliver_at"),
    (b'{"type":"a","data":1,"deliver_at":1893456000}', 422, "deliver_at"),
    (b'{"type":"a","data":1,"deliver_at":"9999-12-31T23:59:59-12:00"}', 422, "deliver_at"),
    (b'{"type":"a","data":1,"deliver_at":"0001-01-01T00:00:00+14:00"}', 422, "deliver_at"),
    (b'{"type":"a","data":1,"metadata":[]}', 422, "metadata"),
    (b'{"type":"a","data":1,"metadata":{"n":1}}', 422, "metadata"),
    (b'{"type":"a","data":1,"metadata":{"n":"\\u0000"}}', 422, "metadata"),
    (b'{"type":"a","data":1,"metadata":{"":"x"}}', 422, "metadata"),
    (b'{"type":"a","data":1,"metadata":{"k":"' + b"v" * 513 + b'"}}', 422, "metadata"),
    (json.dumps({"type": "a", "data": 1, "metadata": {str(n): "" for n in range(51)}}).encode(), 422, "metadata"),
]


@pytest.mark.parametrize(("body", "status", "field"), REFUSED, ids=[repr(body[:60]) for body, _, _ in REFUSED])
def test_a_bad_event_is_refused_by_name_and_leaves_nothing(
    body: bytes, status: int, field: str | None, mine: Caller
) -> None:
    rows.endpoint(mine)
    before = rows.row_counts()
    answer = mine.post("/v1/events", body)
    assert answer.status_code == status, answer.content
    if field is not None:
        assert field in [error["field"] for error in answer.json()["errors"]]
    assert rows.row_counts() == before


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'\xef\xbb\xbf{"type":"a","data":1}', "byte order mark"),
        (b'{"type":"a","data":"\xed\xa0\x80"}', "not UTF-8: byte 20"),
        (b'{"type":"a","data":"\\ud800"}', "half of a surrogate pair"),
        (b'{"type":"a","data":"\\ude00\\ud83d"}', "half of a surrogate pair"),
        (b'{"type":"a","data":"\\\\ud800"', "truncated"),
        (DEEP, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_told_the_reason(body: bytes, reason: str, mine: Caller) -> None:
    answer = mine.post("/v1/events", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert reason in answer.json()["detail"]


def test_every_fault_is_named_at_once(mine: Caller) -> None:
    answer = mine.post("/v1/events", {"type": 1, "deliver_at": "x", "colour": "red"})
    assert {error["field"] for error in answer.json()["errors"]} == {"type", "deliver_at", "colour", "data"}


@pytest.mark.parametrize("key", ["", "k" * 256, "clé", "a\tb"])
def test_a_bad_idempotency_key_is_named(key: str, mine: Caller) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/events", {"type": "a", "data": 1}, Idempotency_Key=key)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["Idempotency-Key"]
    assert rows.row_counts() == before


def test_a_payload_that_is_too_large_is_refused_and_the_largest_is_not(mine: Caller) -> None:
    most = settings.RELAY_MAX_PAYLOAD_BYTES
    before = rows.row_counts()
    answer = mine.post("/v1/events", b'{"type":"a","data":"' + b"x" * (most - 1) + b'"}')
    assert answer.status_code == 413
    assert answer.json()["errors"][0]["field"] == "data"
    assert rows.row_counts() == before
    assert mine.post("/v1/events", b'{"type":"a","data":"' + b"x" * (most - 2) + b'"}').status_code == 202


@pytest.mark.parametrize(
    "data",
    [
        b'{"b": 1.10, "a" : 1e5,\n"a":-0.0}',
        b'"\\u0000 \\u00e9 \\/ \\ud83d\\ude00"',
        '"žluťoučký 😀"'.encode(),
        b"123456789012345678901234567890",
        b"1e999",
        b"null",
        b"[]",
    ],
)
def test_a_payload_is_kept_and_shown_byte_for_byte(data: bytes, mine: Caller) -> None:
    answer = mine.post("/v1/events", b' { "data" :  ' + data + b' , "type":"a" } ')
    assert answer.status_code == 202, answer.content
    event_id = answer.json()["id"]
    assert bytes(Event.objects.get(event_id=ids.parse(ids.EVENT, event_id)).payload) == data
    assert data in mine.get(f"/v1/events/{event_id}").content


def test_the_content_type_is_not_looked_at(mine: Caller) -> None:
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/cloudevents+json", ""):
        answer = mine.client.generic(
            "POST", "/v1/events", b'{"type":"a","data":1}', content_type=content_type, headers=mine.headers
        )
        assert answer.status_code == 202


def test_an_event_is_accepted_for_every_endpoint_that_wants_it(mine: Caller, theirs: Caller) -> None:
    rows.endpoint(theirs)
    everything, invoices = rows.endpoint(mine), rows.endpoint(mine, types=["invoice.*"])
    rows.endpoint(mine, types=["order.made"])
    answer = mine.post(
        "/v1/events",
        {
            "type": "invoice.paid",
            "data": {"n": 1},
            "source": "billing",
            "metadata": {"trace": "1"},
            "deliver_at": "2030-01-01T02:00:00+02:00",
        },
        Idempotency_Key="k-1",
    )
    assert answer.status_code == 202
    assert set(answer.json()) == {"id", "deliveries"}
    assert answer.json()["deliveries"] == 2
    event_id = answer.json()["id"]
    shown = mine.get(f"/v1/events/{event_id}").json()
    assert shown.pop("created_at").endswith("Z")
    assert shown == {
        "id": event_id,
        "type": "invoice.paid",
        "source": "billing",
        "metadata": {"trace": "1"},
        "deliver_at": "2030-01-01T00:00:00Z",
        "headers": None,
        "idempotency_key": "k-1",
        "deliveries": 2,
        "expunged_at": None,
        "data": {"n": 1},
    }
    found = rows.deliveries_of(mine, event_id)
    assert {one["endpoint_id"] for one in found} == {everything, invoices}
    assert {one["status"] for one in found} == {"pending"}
    assert {one["due_at"] for one in found} == {"2030-01-01T00:00:00Z"}


def test_the_same_key_and_content_get_the_same_answer(mine: Caller, theirs: Caller) -> None:
    rows.endpoint(mine)
    body = {"type": "a", "data": {"n": 1}}
    first = mine.post("/v1/events", body, Idempotency_Key="k")
    before = rows.row_counts()
    again = mine.post("/v1/events", body, Idempotency_Key="k")
    assert (again.status_code, again.json()) == (202, first.json())
    assert again["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first
    other = mine.post("/v1/events", {"type": "a", "data": {"n": 2}}, Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert first.json()["id"] in other.json()["detail"]
    assert rows.row_counts() == before
    assert theirs.post("/v1/events", body, Idempotency_Key="k").json()["id"] != first.json()["id"]


def pages_of(by: Caller, path: str) -> list[list[dict[str, Any]]]:
    pages, cursor = [], ""
    while True:
        page = by.get(f"{path}{'&' if '?' in path else '?'}limit=2{cursor}").json()
        assert set(page) == {"items", "next_cursor"}
        pages.append(page["items"])
        if page["next_cursor"] is None:
            return pages
        cursor = f"&cursor={page['next_cursor']}"


def test_pages_show_every_event_once_newest_first(mine: Caller) -> None:
    made = [rows.event(mine, data=n) for n in range(4)]
    pages = pages_of(mine, "/v1/events")
    assert [len(page) for page in pages] == [2, 2]
    assert [event["id"] for page in pages for event in page] == made[::-1]
    assert "data" not in pages[0][0]


def test_a_page_does_not_move_when_events_arrive(mine: Caller) -> None:
    made = [rows.event(mine) for _ in range(3)]
    first = mine.get("/v1/events?limit=2").json()
    rows.event(mine)
    second = mine.get(f"/v1/events?limit=2&cursor={first['next_cursor']}").json()
    assert [one["id"] for one in second["items"]] == made[:1]


def test_events_are_filtered_by_type_and_time(mine: Caller) -> None:
    old, new = rows.event(mine, type="a"), rows.event(mine, type="b")
    at = mine.get(f"/v1/events/{new}").json()["created_at"]

    def found(query: str) -> list[str]:
        return [event["id"] for event in mine.get(f"/v1/events?{query}").json()["items"]]

    assert found("type=a") == [old]
    assert found("type=none") == []
    assert found(f"since={at}") == [new]
    assert found(f"until={at}") == [old]
    assert found("since=2020-01-01T00:00:00Z&until=2099-01-01T00:00:00%2B02:00") == [new, old]
    assert found("until=1970-01-01T00:00:00Z") == []
    assert found("since=8999-12-31T23:59:59Z") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("type=%00", "type"),
        ("type=a*", "type"),
        ("since=yesterday", "since"),
        ("until=2020-01-01T00:00:00", "until"),
        ("until=0001-01-01T00:00:00%2B14:00", "until"),
        ("since=9999-12-31T23:59:59-14:00", "since"),
        ("since=1700000000", "since"),
        ("until=2020-02-30T00:00:00Z", "until"),
    ],
)
def test_a_bad_filter_is_named(query: str, field: str, mine: Caller) -> None:
    answer = mine.get(f"/v1/events?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_attempts_of_an_event_are_shown_in_order(mine: Caller) -> None:
    rows.endpoint(mine)
    rows.endpoint(mine)
    event_id = rows.event(mine)
    for delivery in rows.deliveries_of(mine, event_id):
        for _ in range(2):
            rows.settle(rows.claim(delivery["operation_id"]), Proof.NOT_TAKEN, retry_ms=0)
    pages = pages_of(mine, f"/v1/events/{event_id}/attempts")
    found = [attempt for page in pages for attempt in page]
    assert [attempt["number"] for attempt in found] == [1, 2, 1, 2]
    assert found[0]["operation_id"] == found[1]["operation_id"] != found[2]["operation_id"]
    assert {"number", "epoch", "owner", "started_at", "ended_at", "verdict", "http_status", "error", "evidence"} <= set(
        found[0]
    )
    assert found[0]["response_body"] == "café \ufffd"
    assert pages_of(mine, f"/v1/events/{rows.event(mine)}/attempts") == [[]]


def test_a_longer_page_costs_no_more_queries(mine: Caller, django_assert_num_queries: Any) -> None:
    for _ in range(3):
        rows.endpoint(mine)
    event_id = rows.event(mine)
    for delivery in rows.deliveries_of(mine, event_id):
        rows.settle(rows.claim(delivery["operation_id"]), Proof.ACCEPTED)
    rows.event(mine)
    for path, queries in (
        ("/v1/events", 1),
        (f"/v1/events/{event_id}/deliveries", 5),
        (f"/v1/events/{event_id}/attempts", 3),
        ("/v1/deliveries", 4),
        ("/v1/operations", 2),
        ("/v1/operations?status=succeeded", 2),
        ("/v1/operations?status=prepared", 3),
        ("/v1/endpoints", 2),
    ):
        mine.get(path)
        with django_assert_num_queries(queries):
            assert mine.get(path).json()["items"]


def test_a_time_too_far_away_is_answered_with_the_bound(mine: Caller) -> None:
    answer = mine.post("/v1/events", {"type": "a", "data": 1, "deliver_at": "9999-12-31T23:59:59Z"})
    (error,) = answer.json()["errors"]
    assert error["field"] == "deliver_at"
    assert "from the year 1970 to 8999" in error["detail"]
