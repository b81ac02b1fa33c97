"""Many submits at once with one name are one event."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from deliveries.models import Event
from tests.submitting.producer import Producer
from tests.submitting.whole import Stored, stored
from tests.support import deliveries

TOGETHER = 64
NOWHERE = "http://127.0.0.1:9/"
BODY = b'{"type":"a","data":{"n":1}}'
ONCE = Stored(2, 2, 2, 2, 2, 2)


def all_at_once(producer: Producer, requests: list[Any]) -> list[Any]:
    """The answers to these requests, which leave at the same moment on connections of their own."""
    start = Barrier(len(requests))

    def ask(request: Any) -> Any:
        mine = producer.another()
        start.wait(30)
        return request(mine)

    with ThreadPoolExecutor(len(requests)) as crowd:
        return list(crowd.map(ask, requests))


@pytest.fixture
def wanted(producer: Producer) -> None:
    """Two endpoints that want everything, one of them judged by its filter."""
    deliveries.endpoint(producer.tenant_id, NOWHERE)
    deliveries.endpoint(producer.tenant_id, NOWHERE, filter={"n": {"$gte": 1}})


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("name", ["key", "id"])
def test_sixty_four_submits_with_one_name_are_one_event_and_get_one_answer(producer: Producer, name: str) -> None:
    body = BODY if name == "key" else BODY[:-1] + b',"id":"mine"}'
    headers = {"Idempotency_Key": "k"} if name == "key" else {}
    answers = all_at_once(producer, [lambda mine: mine.event(body, **headers)] * TOGETHER)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers].count("true") == TOGETHER - 1
    assert stored(producer.tenant_id) == {answers[0].json()["id"]: ONCE}


@pytest.mark.usefixtures("wanted")
def test_of_many_contents_with_one_key_one_is_accepted_and_all_others_are_conflicts(producer: Producer) -> None:
    def request(number: int) -> Any:
        return lambda mine: mine.event(b'{"type":"a","data":{"n":%d}}' % (number % 8 + 1), Idempotency_Key="k")

    answers = all_at_once(producer, [request(number) for number in range(TOGETHER)])
    good = [answer for answer in answers if answer.status_code == 202]
    assert len(good) == TOGETHER // 8
    assert len({answer.content for answer in good}) == 1
    assert {answer.json()["code"] for answer in answers if answer.status_code != 202} == {"idempotency_conflict"}
    assert stored(producer.tenant_id) == {good[0].json()["id"]: ONCE}
    payload = bytes(Event.objects.get(tenant_id=producer.tenant_id).payload)
    place = json.loads(payload)["n"] - 1
    assert {number % 8 for number, answer in enumerate(answers) if answer.status_code == 202} == {place}


@pytest.mark.usefixtures("wanted")
def test_batches_at_once_with_the_same_names_in_opposite_orders_store_each_event_once(producer: Producer) -> None:
    """Each waits for keys that the other has taken, so PostgreSQL ends one of them. It comes again, untold."""
    items = [b'{"type":"a","data":{"n":1},"idempotency_key":"k%d"}' % number for number in range(300)]
    orders = [items, items[::-1]] * 4
    answers = all_at_once(producer, [lambda mine, order=order: mine.batch(order) for order in orders])
    assert {answer.status_code for answer in answers} == {200}, [answer.text[:200] for answer in answers]
    said = [[one["id"] for one in answer.json()["items"]] for answer in answers]
    assert {tuple(ids) for ids in said} == {tuple(said[0]), tuple(said[0][::-1])}
    firsts = [one for answer in answers for one in answer.json()["items"] if not one["replayed"]]
    assert len(firsts) == len(items)
    assert stored(producer.tenant_id) == dict.fromkeys(said[0], ONCE)
