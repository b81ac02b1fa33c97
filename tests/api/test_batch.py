"""`POST /v1/events/batch`: every item has its own answer, and none is lost for another's fault."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client
from pytest_django.fixtures import Settings

from deliveries import event_types
from deliveries.models import Event, EventType
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

PATH = "/v1/events/batch"
GOOD = {"type": "a", "data": {"n": 1}}
JSON, LINES = "application/json", "application/x-ndjson"


def sent(by: Caller, body: bytes, kind: str = JSON) -> Any:
    return by.client.generic("POST", PATH, body, content_type=kind, headers=by.headers)


def spelt(items: list[bytes], kind: str) -> bytes:
    """A batch of these items in either form."""
    return b"[" + b",".join(items) + b"]" if kind == JSON else b"\n".join(items)


def results(answer: Any) -> list[dict[str, Any]]:
    """The items of a batch that was read, in order."""
    assert answer.status_code == 200, answer.content
    said: dict[str, Any] = answer.json()
    found: list[dict[str, Any]] = said["items"]
    assert [one["index"] for one in found] == list(range(len(found)))
    assert said["accepted"] == sum(one["status"] == 202 for one in found)
    assert said["refused"] == sum(one["status"] != 202 for one in found)
    assert all(("error" in one) == (one["status"] != 202) for one in found)
    return found


@pytest.mark.parametrize("kind", [JSON, LINES, "application/jsonl", "application/x-ndjson; charset=utf-8"])
def test_what_is_good_is_stored_and_what_is_not_says_why_in_its_place(kind: str, mine: Caller) -> None:
    rows.endpoint(mine, types=["wanted"])
    items = [
        b'{"type":"wanted","data":{"b": 1.10}}',
        b'{"type":"no good","data":1}',
        b'{"type":"a","data":1,"colour":"red"}',
        b"[]",
        b'{"type":"a","data":"' + b"x" * configured.RELAY_MAX_PAYLOAD_BYTES + b'"}',
        b'{"type":"a","data":1,"idempotency_key":"cl\xc3\xa9"}',
        b'{"type":"relay.x","data":1}',
        b'{"type":"a","data":null,"id":"mine-1"}',
    ]
    before = rows.row_counts()
    found = results(sent(mine, spelt(items, JSON if kind == JSON else LINES), kind))
    assert [one["status"] for one in found] == [202, 422, 422, 400, 413, 422, 422, 202]
    assert [one["error"]["errors"][0]["field"] for one in found if one["status"] == 422] == [
        "type", "colour", "idempotency_key", "type",
    ]  # fmt: skip
    assert (found[0]["deliveries"], found[7]["deliveries"]) == (1, 0)
    assert not found[0]["replayed"]
    assert found[7]["id"] == "mine-1"
    assert b'{"b": 1.10}' in mine.get(f"/v1/events/{found[0]['id']}").content
    added = {"Event": 2, "Task": 1, "Run": 1, "Lease": 1, "Operation": 1, "Dispatch": 1}
    assert rows.row_counts() == {name: count + added.get(name, 0) for name, count in before.items()}


@pytest.mark.parametrize("kind", [JSON, LINES])
def test_a_batch_of_which_nothing_is_good_is_answered_all_the_same_and_leaves_nothing(kind: str, mine: Caller) -> None:
    rows.endpoint(mine)
    before = rows.row_counts()
    found = results(sent(mine, spelt([b"1", b'{"type":"a"}'], kind), kind))
    assert [one["status"] for one in found] == [400, 422]
    assert rows.row_counts() == before


def test_a_line_that_is_no_json_is_refused_alone(mine: Caller) -> None:
    good = b'{"type":"a","data":1}'
    strange = [b"{", good + b"]", b'{"type":"a","data":"\xff"}', b"\xef\xbb\xbf" + good, b'{"type":1,', b"[" * 100_000]
    strange.append(b'{"type":"a","data":"\\ud800"}')
    body = b"\r\n".join([b"", good, *strange, b" \t", good, b"", b""])
    found = results(sent(mine, body, LINES))
    assert [one["status"] for one in found] == [202, *[400] * len(strange), 202]
    assert all(one["error"]["code"] == "malformed" for one in found[1:-1])
    assert "byte order mark" in found[4]["error"]["detail"]
    assert Event.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", JSON, 400),
        (b"[", JSON, 400),
        (b'[{"type":"a","data":1}', JSON, 400),
        (b'[{"type":"a","data":1}] x', JSON, 400),
        (b'[{"type":"a","data":1},]', JSON, 400),
        (b'[{"type":"a","data":1},{"type":"a","data":"\xff"}]', JSON, 400),
        (b'[{"type":"a","data":1},{"type":"a","data":"\\ud800"}]', JSON, 400),
        (b'\xef\xbb\xbf[{"type":"a","data":1}]', JSON, 400),
        (b'[{"type":"a","data":1},' + b"[" * 100_000 + b"]" * 100_001, JSON, 400),
        (b'{"type":"a","data":1}', JSON, 400),
        (b'{"type":"a","data":1}\n{"type":"a","data":1}', JSON, 400),
        (b"null", JSON, 400),
        (b" [ ] ", JSON, 422),
        (b"\n \r\n\t\n", LINES, 422),
    ],
)
def test_a_body_that_is_no_batch_is_refused_whole(body: bytes, kind: str, status: int, mine: Caller) -> None:
    before = rows.row_counts()
    answer = sent(mine, body, kind)
    assert (answer.status_code, set(answer.json()) - {"errors"}) == (status, {"code", "detail"}), answer.content
    assert rows.row_counts() == before


@pytest.mark.parametrize("kind", [JSON, LINES])
def test_a_thousand_items_are_taken_and_one_more_is_not(kind: str, mine: Caller) -> None:
    item = b'{"type":"a","data":1}'
    before = rows.row_counts()
    answer = sent(mine, spelt([item] * 1_001, kind), kind)
    assert answer.status_code == 413
    assert "1000" in answer.json()["detail"]
    assert rows.row_counts() == before
    assert len({one["id"] for one in results(sent(mine, spelt([item] * 1_000, kind), kind))}) == 1_000


@pytest.mark.parametrize(("body", "kind"), [(b"[" + b"1," * 2_000_000 + b"1]", JSON), (b"1\n" * 2_000_000, LINES)])
def test_millions_of_items_are_refused_without_being_built(body: bytes, kind: str, mine: Caller) -> None:
    sent(mine, b"[1]")  # What is remembered of the key is not of this batch.
    tracemalloc.start()
    try:
        answer = sent(mine, body, kind)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 413
    assert peak < 4 * len(body), f"{peak} bytes for a body of {len(body)}"


def test_the_largest_batch_is_taken_and_one_byte_more_is_not(mine: Caller, settings: Settings) -> None:
    settings.RELAY_MAX_BATCH_BYTES = most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 10
    body = b'[{"type":"a","data":1}]'
    before = rows.row_counts()
    answer = sent(mine, body.ljust(most + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert str(most) in answer.json()["detail"]
    assert rows.row_counts() == before
    assert results(sent(mine, body.ljust(most)))[0]["status"] == 202


def test_a_batch_again_gets_the_same_answers(mine: Caller) -> None:
    rows.endpoint(mine)
    items = [{**GOOD, "idempotency_key": "k1"}, {**GOOD, "id": "i1"}, {"type": "!"}]
    first = results(mine.post(PATH, items))
    before = rows.row_counts()
    again = results(mine.post(PATH, items))
    assert [one["replayed"] for one in again[:2]] == [True, True]
    assert [{**one, "replayed": False} for one in again[:2]] == first[:2]
    assert again[2] == first[2]
    assert rows.row_counts() == before
    alone = mine.post("/v1/events", GOOD, Idempotency_Key="k1")
    assert (alone.json()["id"], alone["Idempotent-Replayed"]) == (first[0]["id"], "true")


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", ["idempotency_key", "id"])
def test_twice_in_one_batch_is_once_and_the_first_of_them_counts(name: str, filtered: bool, mine: Caller) -> None:
    """The second is the one that an endpoint wants, so the plan of the statement would reach it first."""
    rows.endpoint(mine, types=["wanted"], **({"filter": {"n": 1}} if filtered else {}))
    first, other = {**GOOD, name: "x"}, {**GOOD, "type": "wanted", name: "x"}
    found = results(mine.post(PATH, [first, other, first, {**GOOD, "type": "wanted"}]))
    assert [one["status"] for one in found] == [202, 409, 202, 202]
    assert (found[0]["replayed"], found[2]["replayed"]) == (False, True)
    assert found[0]["id"] == found[2]["id"]
    code = "id_conflict" if name == "id" else "idempotency_conflict"
    assert found[1]["error"]["code"] == code
    assert found[0]["id"] in found[1]["error"]["detail"]
    assert [one["deliveries"] for one in found if "deliveries" in one] == [0, 0, 1]
    assert Event.objects.count() == 2


def test_a_schema_is_kept_by_each_item_and_what_was_promised_before_it_stays_promised(mine: Caller) -> None:
    items = [{**GOOD, "idempotency_key": "k"}, {**GOOD, "data": 1}, {**GOOD, "type": "b", "data": 1}]
    first = results(mine.post(PATH, items[:1]))
    EventType.objects.create(tenant_id="default", name="a", schema={"required": ["other"]})
    event_types.forget()
    before = Event.objects.count()
    found = results(mine.post(PATH, [*items, {**GOOD, "data": {}}]))
    assert [one["status"] for one in found] == [202, 202, 202, 422]
    assert (found[0]["id"], found[0]["replayed"]) == (first[0]["id"], True)
    assert found[3]["error"]["errors"][0]["field"].startswith("data")
    assert Event.objects.count() == before + 2
    changed = mine.post("/v1/events", {**GOOD, "data": {}}, Idempotency_Key="k")
    assert changed.status_code == 422
    event_types.forget()


def test_a_batch_takes_the_scope_and_only_post(mine: Caller) -> None:
    assert rows.caller("read").post(PATH, [GOOD]).status_code == 403
    assert Client().post(PATH, json.dumps([GOOD]), content_type=JSON).status_code == 401
    assert mine.get(PATH).status_code in {404, 405}
    assert Event.objects.count() == 0
