"""Events meet the filters of endpoints when they are accepted: each endpoint gets what passes its own."""

from __future__ import annotations

from typing import Any

import pytest

from deliveries import ids
from deliveries import submit as submitting
from deliveries.models import Endpoint, Event
from deliveries.submit import Accepted, FiltersChanging, NewEvent, submit
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

    def judge_and_change(missed: Any) -> Any:
        judged = judge(missed)
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

    def judge_and_change(missed: Any) -> Any:
        judged = judge(missed)
        row.update(filter={"total": next(count)})
        return judged

    monkeypatch.setattr(submitting, "_judge", judge_and_change)
    with pytest.raises(FiltersChanging):
        submit([NewEvent("default", "a", b'{"total":7}')])
    assert not Event.objects.exists()
    answer = mine.post("/v1/events", {"type": "a", "data": {"total": 5}})
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "unavailable", "1")
    assert not Event.objects.exists()


def test_without_filters_an_event_costs_one_statement(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.endpoint(mine)
    monkeypatch.setattr(submitting, "_judge", None)
    (answer,) = submit([NewEvent("default", "a", b"1")])
    assert isinstance(answer, Accepted)
