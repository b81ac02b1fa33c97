"""kill -9 of the web server in the middle of batches: what was promised is there, and nothing is half there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread

import pytest
import requests

from deliveries.models import Event
from tests.submitting.producer import JSON, LINES, Producer
from tests.submitting.whole import stored
from tests.support import deliveries
from tests.support.waiting import wait_until
from tests.support.web import Web

ROUNDS = 4
PRODUCERS = 3
ITEMS = 200
NOWHERE = "http://127.0.0.1:9/"
SOON_S = 30.0


class Crowd:
    """Producers that submit batches, and single events between them, one after another until they are told to stop."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.promised: dict[str, str] = {}
        """Key to id: everything that was answered."""
        self.unanswered: dict[str, bytes] = {}
        """Key to item: what may have been stored or not."""
        self.answers = 0
        self.faults: list[str] = []
        self._made = 0

    @contextmanager
    def at(self, url: str) -> Iterator[None]:
        """They submit there while the block lasts."""
        stop = Flag()
        threads = [
            Thread(target=self._submit, args=(self.producer.another(url), name, stop)) for name in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(SOON_S)
                assert not thread.is_alive()

    def _submit(self, mine: Producer, name: int, stop: Flag) -> None:
        turn = 0
        while not stop.is_set():
            self._made += 1
            turn += 1
            prefix = f"{name}-{self._made}-{os.urandom(4).hex()}"
            keys = [f"{prefix}-{place}" for place in range(ITEMS if turn % 4 else 1)]
            items = {key: b'{"type":"a","data":"%s","idempotency_key":"%s"}' % (2 * (key.encode(),)) for key in keys}
            self.unanswered |= items
            try:
                answer = mine.batch(list(items.values()), LINES if turn % 2 else JSON)
            except requests.RequestException:
                continue  # The server died over it: nobody knows.
            self.answers += 1
            if answer.status_code != 200:
                self.faults.append(answer.text)
                continue
            for key, one in zip(keys, answer.json()["items"], strict=True):
                if one["status"] == 202:
                    self.promised[key] = one["id"]
                    del self.unanswered[key]
                else:
                    self.faults.append(str(one))


def check(crowd: Crowd, endpoints: int) -> int:
    """Everything promised is stored; all that is stored is whole, and whole batches. How many events there are."""
    assert crowd.faults == []
    tenant_id = crowd.producer.tenant_id
    found = stored(tenant_id)
    halves = {name: one for name, one in found.items() if not one.whole() or one.deliveries != endpoints}
    assert halves == {}
    keys = dict(Event.objects.filter(tenant_id=tenant_id).values_list("idempotency_key", "event_id"))
    kept = {key: f"evt_{event_id.hex}" for key, event_id in keys.items() if key is not None}
    assert {key: kept.get(key) for key in crowd.promised} == crowd.promised
    assert set(kept) <= set(crowd.promised) | set(crowd.unanswered)
    # A batch is one commit: of one that was not answered all is there or nothing.
    by_batch: dict[str, set[bool]] = {}
    for key in crowd.unanswered:
        by_batch.setdefault(key.rpartition("-")[0], set()).add(key in kept)
    assert all(len(there) == 1 for there in by_batch.values()), "a batch that is half there"
    return len(found)


def ask_again(crowd: Crowd, url: str) -> None:
    """With its keys, what was not answered can be sent again: then everything is there exactly once."""
    again = crowd.producer.another(url)
    asked = dict(crowd.unanswered)
    places = list(asked)
    for start in range(0, len(places), 1_000):
        some = places[start : start + 1_000]
        answer = again.batch([asked[key] for key in some])
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == len(some)
        for key, one in zip(some, answer.json()["items"], strict=True):
            crowd.promised[key] = one["id"]
            del crowd.unanswered[key]


def more_answers(crowd: Crowd) -> None:
    """Wait until some more requests were answered."""
    before = crowd.answers
    wait_until(lambda: crowd.answers >= before + 5, SOON_S, "batches are answered")


def kill_workers(web: Web, count: int) -> None:
    """SIGKILL to some of its two workers, and wait until others have taken their places."""
    killed = sorted(web.children())[:count]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(web.children() - set(killed)) == 2, SOON_S, "new workers")


@pytest.mark.timeout(300)
def test_workers_of_the_server_are_killed(tenant: str) -> None:
    """A server of its own each time: it ends by itself when workers die soon after they were started."""
    for _ in range(2):
        deliveries.endpoint(tenant, NOWHERE)
    crowd = Crowd(Producer("", tenant))
    for number in range(ROUNDS):
        with Web(RELAY_WEB_PROCESSES="2") as web, crowd.at(web.url):
            more_answers(crowd)
            kill_workers(web, 1 + number % 2)
            more_answers(crowd)
        check(crowd, endpoints=2)
    assert crowd.unanswered, "no request was under way when a worker died"
    with Web() as web:
        ask_again(crowd, web.url)
    assert check(crowd, endpoints=2) == len(crowd.promised)


@pytest.mark.timeout(300)
def test_the_server_itself_is_killed(tenant: str) -> None:
    for _ in range(2):
        deliveries.endpoint(tenant, NOWHERE)
    crowd = Crowd(Producer("", tenant))
    for _ in range(ROUNDS):
        with Web() as web, crowd.at(web.url):
            more_answers(crowd)
            web.kill_all()
        check(crowd, endpoints=2)
    assert crowd.unanswered, "no request was under way when the server died"
    with Web() as web:
        ask_again(crowd, web.url)
    assert check(crowd, endpoints=2) == len(crowd.promised)
