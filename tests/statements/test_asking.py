"""Which receivers are asked, when, and how many at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from deliveries import asking, endpoints, querying
from deliveries.models import Acknowledgement, Endpoint, Tenant
from deliveries.queries import ASKING
from ledger.models import Operation
from tests.receiver import Answer, Received, Receiver
from tests.support.ledger_rows import TENANT, Planted, change, from_now, insert, plant

pytestmark = pytest.mark.django_db

DAY_MS = 86_400_000
PROCESSED = Answer(body=json.dumps({"outcome": "processed"}).encode())


@pytest.fixture(autouse=True)
def from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks begin at the first key, whatever another test has left."""
    Tenant.objects.get_or_create(tenant_id=TENANT, defaults={"name": "Default"})
    monkeypatch.setattr(asking, "_PLACE", asking._Place())


def endpoint(query_url: str | None = "http://127.0.0.1:9/ask", timeout_ms: int | None = None) -> Endpoint:
    made, _ = endpoints.create(
        TENANT,
        {"url": "http://127.0.0.1:9/", "query_url": query_url, "idempotent": False, "timeout_ms": timeout_ms},
    )
    return made


def unknown(of: Endpoint, *, since_ms: int = -2000, answers_ms: tuple[int, ...] = (), **fields: Any) -> Planted:
    """An unknown operation, since when, and the answers to questions that are on record."""
    one = plant("unknown", endpoint_id=of.endpoint_id, **fields)
    change("ledger_dispatch", {"operation_key": one.operation_key}, unknown_since=from_now(since_ms))
    for received_ms in answers_ms:
        insert(
            "deliveries_acknowledgement", operation_key=one.operation_key, run_id=one.run_id, source="query",
            said="unknown", covers=1, detail="", actor="query", received_at=from_now(received_ms),
        )  # fmt: skip
    return one


def due(**options: Any) -> set[int]:
    found, _ = querying.due(0, **options)
    return {one.operation_key for one in found}


@pytest.mark.parametrize(
    ("since_ms", "answers_ms", "now"),
    [
        (-500, (), False),
        (-1_500, (), True),
        (-20_000, (-9_000,), False),
        (-20_000, (-11_000,), True),
        (-90_000, (-80_000, -55_000), False),
        (-90_000, (-80_000, -65_000), True),
        (-DAY_MS, (-30, -20, -10), False),
        (-3 * DAY_MS, tuple(-DAY_MS + at for at in range(9)), True),
        (-3 * DAY_MS, tuple(-21_000_000 + at for at in range(9)), False),
        (-7 * DAY_MS - 1000, (), False),
        (-2_000, (-60_000,), True),  # an answer from before it came to be unknown (again) does not count
    ],
)
def test_questions_follow_the_schedule_counted_from_the_answers_on_record(
    since_ms: int, answers_ms: tuple[int, ...], now: bool
) -> None:
    one = unknown(endpoint(), since_ms=since_ms, answers_ms=answers_ms)
    assert due() == ({one.operation_key} if now else set())
    assert asking.any_due() == now


def test_only_what_can_be_asked_about_is_asked_about() -> None:
    fine = endpoint()
    one = unknown(fine)
    unknown(endpoint(query_url=None))
    deleted = endpoint()
    unknown(deleted)
    Endpoint.objects.filter(pk=deleted.pk).update(deleted_at=deleted.created_at)
    unknown(fine, owner="somebody", claimed_by="somebody")
    plant("prepared", endpoint_id=fine.endpoint_id)
    plant("dispatching", endpoint_id=fine.endpoint_id)
    assert due() == {one.operation_key}


def test_a_look_is_bounded_and_the_next_one_goes_on_where_it_ended() -> None:
    target = endpoint()
    keys = [unknown(target).operation_key for _ in range(5)]
    seen, after = [], 0
    for _ in range(3):
        found, after = querying.due(after, stretch=2)
        seen.append([one.operation_key for one in found])
    assert seen == [keys[:2], keys[2:4], keys[4:]]
    assert after == 0
    assert len(due(each=3)) == 3


class Crowd(Receiver):
    """Counts how many questions it has at once; `says` after `delay` seconds, or nothing at all."""

    def __init__(self, delay: float = 0.15, *, dumb: bool = False) -> None:
        super().__init__(self._reply)
        self.most = 0
        self._delay = delay
        self._dumb = dumb
        self._now = 0
        self._lock = threading.Lock()

    def _reply(self, _: Received) -> Answer:
        if self._dumb:
            return Answer(hang=True)
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self._delay)  # the time that this receiver takes
        with self._lock:
            self._now -= 1
        return PROCESSED


def statuses() -> list[str]:
    return list(Operation.objects.order_by("operation_key").values_list("status", flat=True))


def test_a_round_asks_two_at_once_of_one_endpoint_and_all_that_is_due() -> None:
    with Crowd() as receiver:
        target = endpoint(receiver.url)
        for _ in range(6):
            unknown(target)
        assert asking.ask_all(lambda: False) == 6
    assert receiver.most == 2
    assert statuses() == ["succeeded"] * 6
    assert Acknowledgement.objects.count() == 6


def test_an_endpoint_that_does_not_answer_is_left_alone_and_others_are_asked_meanwhile() -> None:
    with Crowd(dumb=True) as dumb, Crowd(0.0) as fine:
        silent, talking = endpoint(dumb.url, timeout_ms=1500), endpoint(fine.url)
        stuck = [unknown(silent) for _ in range(8)]
        asked = [unknown(talking) for _ in range(8)]
        begun = time.monotonic()
        assert asking.ask_all(lambda: False) == 10
        assert 1.4 < time.monotonic() - begun < 5
        assert len(dumb.requests) == 2
    assert statuses() == ["unknown"] * len(stuck) + ["succeeded"] * len(asked)


def test_a_round_that_is_told_to_stop_begins_nothing_more_and_keeps_what_it_began() -> None:
    with Crowd() as receiver:
        target = endpoint(receiver.url)
        for _ in range(6):
            unknown(target)
        assert asking.ask_all(lambda: len(receiver.requests) > 0) == 2
        assert len(receiver.requests) == 2
        assert asking.ask_all(lambda: True) == 0
    assert sorted(statuses()) == ["succeeded"] * 2 + ["unknown"] * 4


def test_a_round_begins_nothing_when_its_time_is_up() -> None:
    unknown(endpoint())
    assert asking.ask_all(lambda: False, seconds=0.0) == 0


@pytest.fixture
def rival() -> Iterator[psycopg.Connection[Any]]:
    """Another session of the database."""
    parameters = {
        name: value
        for name, value in connection.get_connection_params().items()
        if name not in ("cursor_factory", "context")
    }
    with psycopg.connect(**parameters, autocommit=True) as session_of_another:
        yield session_of_another


def test_only_one_round_goes_on_at_a_time(rival: psycopg.Connection[Any]) -> None:
    with Crowd(0.0) as receiver:
        unknown(endpoint(receiver.url))
        rival.execute("SELECT pg_advisory_lock(%s, %s)", asking._ROUND)
        assert asking.ask_all(lambda: False) == 0
        rival.execute("SELECT pg_advisory_unlock(%s, %s)", asking._ROUND)
        assert asking.ask_all(lambda: False) == 1


def test_what_somebody_else_asks_about_is_passed_over(rival: psycopg.Connection[Any]) -> None:
    with Crowd(0.0) as receiver:
        target = endpoint(receiver.url)
        theirs, ours = unknown(target), unknown(target)
        rival.execute("SELECT pg_advisory_lock(%s, hashint8(%s))", (ASKING, theirs.operation_key))
        assert asking.ask_all(lambda: False) == 1
    assert Operation.objects.get(operation_key=ours.operation_key).status == "succeeded"
    assert Operation.objects.get(operation_key=theirs.operation_key).status == "unknown"


def test_no_lock_is_left_behind() -> None:
    with Crowd(0.0) as receiver:
        unknown(endpoint(receiver.url))
        asking.ask_all(lambda: False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)
