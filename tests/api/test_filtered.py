"""Events meet the filters of endpoints when they are accepted: each endpoint gets what passes its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from deliveries import accepting as submitting
from deliveries import filters, ids
from deliveries.models import Endpoint, Event
from deliveries.submit import Accepted, FiltersChanging, IdempotencyConflict, NewEvent, submit
from ledger.models import Task
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db


def filtered(by: Caller, wanted: Any, **fields: Any) -> str:
    endpoint = rows.endpoint(by, **fields)
    Endpoint.objects.filter(pk=ids.parse(ids.ENDPOINT, endpoint)).update(filter=wanted)
    return endpoint


def receivers(event: str) -> set[str]:
    tasks = Task.objects.filter(event_id=ids.parse(ids.EVENT, event))
    return {ids.render(ids.ENDPOINT, task.endpoint_id) for task in tasks}


def test_an_event_goes_to_the_endpoints_whose_filter_it_passes_and_to_those_without(mine: Caller) -> None:
    everything = rows.endpoint(mine)
    large = filtered(mine, {"total": {"$gte": 1000}})
    german = filtered(mine, {"customer": {"country": "DE"}})
    other_type = filtered(mine, {"total": {"$gte": 0}}, types=["order.*"])
    answer = mine.post("/v1/events", {"type": "invoice.paid", "data": {"total": 1500, "customer": {"country": "AT"}}})
    assert answer.status_code == 202
    assert answer.json()["deliveries"] == 2
    assert receivers(answer.json()["id"]) == {everything, large}
    assert german not in receivers(answer.json()["id"])
    assert other_type not in receivers(answer.json()["id"])


def test_an_event_that_passes_no_filter_is_kept_and_says_0_deliveries(mine: Caller) -> None:
    filtered(mine, {"total": {"$gt": 5}})
    answer = mine.post("/v1/events", {"type": "a", "data": {"total": 5}})
    assert (answer.status_code, answer.json()["deliveries"]) == (202, 0)
    assert mine.get(f"/v1/events/{answer.json()['id']}").json()["data"] == {"total": 5}


def test_an_idempotency_key_is_as_good_with_a_filter_as_without(mine: Caller) -> None:
    passing = filtered(mine, {"total": 5})
    first = mine.post("/v1/events", {"type": "a", "data": {"total": 5}}, Idempotency_Key="k")
    again = mine.post("/v1/events", {"type": "a", "data": {"total": 5}}, Idempotency_Key="k")
    other = mine.post("/v1/events", {"type": "a", "data": {"total": 6}}, Idempotency_Key="k")
    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 409)
    assert first.json() == again.json()
    assert again["Idempotent-Replayed"] == "true"
    assert receivers(first.json()["id"]) == {passing}
    assert Event.objects.count() == 1


def test_a_batch_is_judged_event_by_event_and_answered_in_order(mine: Caller) -> None:
    filtered(mine, {"n": {"$in": [1, 3]}})
    tenant = rows.tenant("other")
    events = [NewEvent("default", "a", b'{"n":%d}' % n) for n in range(4)]
    events[2:2] = [NewEvent(tenant, "a", b'{"n":1}'), NewEvent("default", "a", b'{"n":3}', idempotency_key="k")]
    answers = submit(events)
    assert [answer.deliveries for answer in answers if isinstance(answer, Accepted)] == [0, 1, 0, 1, 0, 1]
    assert Event.objects.count() == 6


def test_what_was_judged_by_a_filter_that_has_changed_since_is_judged_anew(
    mine: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = filtered(mine, {"total": 5})
    row = Endpoint.objects.filter(pk=ids.parse(ids.ENDPOINT, endpoint))
    judge, changes = submitting._judge, iter(({"total": 6}, None))

    def judge_and_change(*missed: Any) -> Any:
        judged = judge(*missed)
        row.update(filter=next(changes))
        return judged

    monkeypatch.setattr(submitting, "_judge", judge_and_change)
    (answer,) = submit([NewEvent("default", "a", b'{"total":7}')])
    assert isinstance(answer, Accepted)
    assert answer.deliveries == 1, "the endpoint has no filter any more"


def test_filters_that_keep_changing_refuse_the_event_and_store_nothing(
    mine: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = filtered(mine, {"total": 0})
    row = Endpoint.objects.filter(pk=ids.parse(ids.ENDPOINT, endpoint))
    judge, count = submitting._judge, iter(range(1, 100))

    def judge_and_change(*missed: Any) -> Any:
        judged = judge(*missed)
        row.update(filter={"total": next(count)})
        return judged

    monkeypatch.setattr(submitting, "_judge", judge_and_change)
    with pytest.raises(FiltersChanging):
        submit([NewEvent("default", "a", b'{"total":7}')])
    assert not Event.objects.exists()
    answer = mine.post("/v1/events", {"type": "a", "data": {"total": 5}})
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "unavailable", "1")
    assert not Event.objects.exists()


def test_a_filter_that_is_taken_away_while_an_event_is_on_its_way_refuses_nothing(
    mine: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = filtered(mine, {"total": 0})
    store = submitting._store

    def store_and_change(*given: Any) -> Any:
        stored = store(*given)
        Endpoint.objects.filter(pk=ids.parse(ids.ENDPOINT, endpoint)).update(filter=None)
        return stored

    monkeypatch.setattr(submitting, "_store", store_and_change)
    (answer,) = submit([NewEvent("default", "a", b'{"total":7}')])
    assert isinstance(answer, Accepted)
    assert answer.deliveries == 1


def test_what_was_judged_as_before_is_not_stored_as_before_again(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    filtered(mine, {"total": 0})
    judge = submitting._judge
    monkeypatch.setattr(
        submitting, "_judge", lambda *given: [replace(one, filter_hash="former") for one in judge(*given)]
    )
    calls = counted(monkeypatch)
    with pytest.raises(FiltersChanging):
        submit([NewEvent("default", "a", b'{"total":7}')])
    assert calls == {"_store": 2, "_judge": 2}
    assert not Event.objects.exists()


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often submitting stores and judges from now on."""
    calls = {"_store": 0, "_judge": 0}

    def counting(name: str) -> None:
        done = getattr(submitting, name)

        def call(*given: Any) -> Any:
            calls[name] += 1
            return done(*given)

        monkeypatch.setattr(submitting, name, call)

    for name in calls:
        counting(name)
    return calls


def test_an_event_that_is_there_under_its_key_is_not_judged_again(
    mine: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtered(mine, {"total": 5})
    once = NewEvent("default", "a", b'{"total":5}', idempotency_key="k")
    (first,) = submit([once])
    calls = counted(monkeypatch)
    (again,) = submit([once])
    assert again == Accepted(first.event_id, 1, replayed=True)
    assert calls == {"_store": 1, "_judge": 0}


def test_of_a_batch_only_what_is_new_is_judged_and_every_event_is_answered_in_its_place(
    mine: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtered(mine, {"total": 5})
    (first,) = submit([NewEvent("default", "a", b'{"total":5}', idempotency_key="k")])
    seen: list[bytes] = []
    judge = submitting._judge

    def judge_and_tell(missed: Any, *more: Any) -> Any:
        seen.extend(event.payload for event, _, _ in missed)
        return judge(missed, *more)

    monkeypatch.setattr(submitting, "_judge", judge_and_tell)
    calls = counted(monkeypatch)
    answers = submit([
        NewEvent("default", "a", b'{"total":1}', idempotency_key="new"),
        NewEvent("default", "a", b'{"total":5}', idempotency_key="k"),
        NewEvent("default", "a", b'{"total":6}', idempotency_key="k"),
        NewEvent("default", "a", b'{"total":5}'),
        NewEvent("default", "a", b'{"total":1}', idempotency_key="new"),
    ])  # fmt: skip
    new = answers[0].event_id
    assert answers == [
        Accepted(new, 0, replayed=False),
        Accepted(first.event_id, 1, replayed=True),
        IdempotencyConflict(first.event_id),
        Accepted(answers[3].event_id, 1, replayed=False),
        Accepted(new, 0, replayed=True),
    ]
    assert seen == [b'{"total":1}', b'{"total":5}', b'{"total":1}']
    assert calls == {"_store": 2, "_judge": 1}


@pytest.mark.parametrize("many", [[1e300] * 30, ["x" * 9_000]])
def test_a_filter_that_is_longer_than_one_may_be_is_judged_by(mine: Caller, many: Any) -> None:
    filtered(mine, {"a": {"$in": [*many, 5]}})
    answers = [mine.post("/v1/events", {"type": "a", "data": {"a": value}}) for value in (5, 6)]
    assert [(answer.status_code, answer.json()["deliveries"]) for answer in answers] == [(202, 1), (202, 0)]


def test_an_event_passes_a_filter_that_cannot_be_read(mine: Caller) -> None:
    filtered(mine, {"a": {"$regex": "x"}})
    answer = mine.post("/v1/events", {"type": "a", "data": {"a": 5}})
    assert (answer.status_code, answer.json()["deliveries"]) == (202, 1)


@pytest.mark.parametrize("wanted", [{"a": {"$in": [1e300] * 30}}, {"a": 10**60}])
def test_a_filter_that_the_database_would_write_otherwise_is_refused_when_it_is_saved(
    mine: Caller, wanted: Any
) -> None:
    answer = mine.post("/v1/endpoints", {"url": "https://example.com/", "filter": wanted})
    assert answer.status_code == 422, answer.content
    (error,) = answer.json()["errors"]
    assert error["field"] == "filter"


def test_what_is_saved_is_never_longer_in_the_database_than_a_filter_may_be(mine: Caller) -> None:
    wanted = {"ä\t\x7f😀": {"$in": [1e-30, -1e-9, 1e15, 10**39, 0.1, "\\", '"', "/", [{}, []], None, True]}}
    endpoint = filtered(mine, wanted)
    with connection.cursor() as cursor:
        key = ids.parse(ids.ENDPOINT, endpoint)
        cursor.execute("SELECT filter::text FROM deliveries_endpoint WHERE endpoint_id = %s", [key])
        assert len(cursor.fetchone()[0]) <= filters.written_length(wanted)


def test_the_judgements_of_one_submission_share_their_steps(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    filtered(mine, {"a": 1})
    monkeypatch.setattr(filters, "STEPS", 6)
    answers = submit([NewEvent("default", "a", b'{"a":5}') for _ in range(5)])
    assert sorted(answer.deliveries for answer in answers if isinstance(answer, Accepted)) == [0, 0, 0, 1, 1]


def test_without_filters_an_event_costs_one_statement(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.endpoint(mine)
    monkeypatch.setattr(submitting, "_judge", None)
    (answer,) = submit([NewEvent("default", "a", b"1")])
    assert isinstance(answer, Accepted)
