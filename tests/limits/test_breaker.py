"""The breaker: a sick receiver is left alone, tried by one delivery at a time, and served again when it is well."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from deliveries import endpoints, health
from deliveries.health import Watch
from deliveries.models import Endpoint
from tests.limits.hands import accepted, ago, change, claimed, endpoint, seconds_until, settle, state

pytestmark = pytest.mark.django_db

SICK = [None, 0, 500, 502, 503, 429, 408, 599]
"""Nobody knows, not sent, and answers that tell of a receiver that is not well."""


def breaker(of: Endpoint) -> str:
    return health.state_of([of.endpoint_id])[of.endpoint_id].breaker


def opened(**changes: object) -> tuple[Endpoint, Watch]:
    """An endpoint whose breaker is open, and which has more to get."""
    to, watch = endpoint(**changes), Watch()
    accepted(to, 12)
    settle(claimed(10), 503, watch=watch)
    assert breaker(to) == "open"
    return to, watch


@pytest.mark.parametrize("status", SICK)
def test_ten_sick_answers_in_a_row_open_it_and_nine_do_not(status: int | None) -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 11)
    settle(claimed(9), status, watch=watch)
    assert breaker(to) == "closed"
    settle(claimed(1), status, watch=watch)
    assert breaker(to) == "open"
    assert 3.5 < seconds_until(state(to).open_until) < 6.1
    assert claimed() == []


@pytest.mark.parametrize("status", [200, 404, 422, 302, 410])
def test_an_answer_of_a_receiver_that_is_well_begins_the_count_anew(status: int) -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 30)
    found = claimed(16)
    settle(found[:9], 500, watch=watch)
    settle(found[9:10], status, watch=watch)
    assert breaker(to) == "closed"
    Endpoint.objects.filter(pk=to.pk).update(enabled=True)
    settle(found[10:16], 500, watch=watch)
    assert breaker(to) == "closed"
    assert state(to).failures_in_a_row == 6


def test_what_came_before_and_after_in_one_batch_is_told_apart() -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 16)
    found = claimed(16)
    settle(found[:5], 500, watch=watch)
    for status, some in ((500, found[5:9]), (200, found[9:10]), (500, found[10:13])):
        settle(some, status, watch=watch, written=False)
    watch.write(at_once=True)
    assert (breaker(to), state(to).failures_in_a_row) == ("closed", 3)


def test_half_of_twenty_answers_in_a_minute_open_it() -> None:
    to, watch = endpoint(in_flight=100), Watch()
    accepted(to, 40)
    found = claimed(40)
    for at in range(9):
        settle(found[2 * at : 2 * at + 1], 500, watch=watch)
        settle(found[2 * at + 1 : 2 * at + 2], 200, watch=watch)
    settle(found[18:19], 200, watch=watch)
    assert breaker(to) == "closed"
    settle(found[19:20], 500, watch=watch)
    assert (state(to).window_failed, state(to).window_total) == (0, 0), "a new window begins"
    assert breaker(to) == "open"


def test_what_was_a_minute_ago_is_forgotten() -> None:
    to, watch = endpoint(in_flight=100), Watch()
    accepted(to, 40)
    found = claimed(40)
    settle(found[:9], 500, watch=watch)
    settle(found[9:18], 404, watch=watch)
    change(to, window_since=ago(61))
    settle(found[18:24], 500, watch=watch)
    assert (breaker(to), state(to).window_failed, state(to).window_total) == ("closed", 6, 6)


def test_what_waits_for_it_stays_prepared_and_spends_no_attempt() -> None:
    to, watch = endpoint(), Watch()
    rest = accepted(to, 14)
    settle(claimed(10), 503, watch=watch)
    assert claimed() == []
    assert {(one.status, one.operation.attempts) for one in rest[10:]} == {("prepared", 0)}
    other = endpoint()
    accepted(other)
    assert len(claimed()) == 1, "others are served"


def test_when_its_pause_is_over_one_delivery_at_a_time_tries() -> None:
    to, watch = opened()
    change(to, open_until=ago(1))
    assert breaker(to) == "half_open"
    (probe,) = claimed()
    assert probe.probing
    assert claimed() == [], "one at a time"
    settle([probe], 200, watch=watch)
    assert breaker(to) == "closed"
    accepted(to, 20)
    assert len(claimed()) == to.in_flight
    assert state(to).opens == 0


def test_a_refusal_of_one_payload_closes_it_as_well() -> None:
    to, watch = opened()
    change(to, open_until=ago(1))
    settle(claimed(), 422, watch=watch)
    assert breaker(to) == "closed"


def test_each_failed_try_doubles_the_pause_up_to_a_minute() -> None:
    to, watch = opened()
    accepted(to, 20)
    for number, seconds in enumerate((10, 20, 40, 60, 60, 60), start=2):
        change(to, open_until=ago(0.001))
        settle(claimed(), 503, watch=watch)
        now = state(to)
        assert now.opens == number
        assert seconds * 0.75 < seconds_until(now.open_until) < seconds * 1.21
    change(to, open_until=ago(0.001), opens=5_000)
    settle(claimed(), 503, watch=watch)
    assert breaker(to) == "open"


def test_what_comes_in_from_before_it_opened_moves_nothing() -> None:
    to, watch = endpoint(in_flight=100), Watch()
    accepted(to, 40)
    found = claimed(40)
    settle(found[:10], 503, watch=watch)
    before = state(to)
    settle(found[10:30], 503, watch=watch)
    settle(found[30:], 200, watch=watch)
    after = state(to)
    assert (after.opens, after.open_until) == (before.opens, before.open_until)


def test_dispatchers_count_together() -> None:
    to, one, other = endpoint(), Watch(), Watch()
    accepted(to, 12)
    settle(claimed(5), 500, watch=one)
    settle(claimed(5, owner="other/1/a"), 500, watch=other, owner="other/1/a")
    assert breaker(to) == "open"


def test_it_can_be_switched_off(settings: Settings) -> None:
    settings.RELAY_BREAKER_FAILURES = 0
    to, watch = endpoint(in_flight=100), Watch()
    accepted(to, 100)
    settle(claimed(100), 503, watch=watch)
    assert breaker(to) == "closed"


@pytest.mark.parametrize("pause_over", [True, False])
@pytest.mark.parametrize("status", [200, 404, 503, None])
def test_one_that_is_open_when_breakers_are_switched_off_closes_with_the_next_news(
    settings: Settings, caplog: pytest.LogCaptureFixture, status: int | None, pause_over: bool
) -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 40)
    found = claimed(11)
    settle(found[:10], 503, watch=watch)
    settings.RELAY_BREAKER_FAILURES = 0
    if pause_over:
        change(to, open_until=ago(1))
    settle(found[10:], status, watch=watch)
    watch.write(last=True)
    assert (breaker(to), state(to).opens, state(to).open_until) == ("closed", 0, None)
    assert len(claimed()) == to.in_flight
    assert "breakers are switched off" in caplog.text


def test_enabling_the_endpoint_closes_it() -> None:
    to, _ = opened()
    endpoints.update(to.tenant_id, to.endpoint_id, {"enabled": True})
    assert breaker(to) == "closed"
    assert len(claimed()) == 2


def test_that_an_endpoint_is_still_well_is_not_written_down_every_time() -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 3)
    settle(claimed(1), 200, watch=watch)
    first = state(to).updated_at
    settle(claimed(1), 200, watch=watch)
    assert state(to).updated_at == first
    settle(claimed(1), 500, watch=watch)
    assert state(to).window_total == 3, "it is told with the next news"
