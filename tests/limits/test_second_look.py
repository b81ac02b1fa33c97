"""Limits that wait for something: buckets that are empty, words that are written down late, tries after a doubt."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from deliveries import ids, reconcile
from deliveries.dispatch import claiming, sending
from deliveries.dispatch.claiming import Found, Walk
from deliveries.health import URGENT_EVERY_S, WRITE_EVERY_S, Watch
from deliveries.models import Endpoint
from deliveries.outcomes import ANSWERED, judge
from tests.limits.hands import accepted, ago, change, claimed, endpoint, make_due, settle, state
from tests.ordered.hands import lost
from tests.support import ledger_rows
from tests.support.ledger_rows import OWNER, TTL_MS

pytestmark = pytest.mark.django_db


def tell(of: Endpoint, watch: Watch, times: int = 1, *, probing: bool = False) -> None:
    """The receiver answered 503, and nothing of that was written down yet."""
    for _ in range(times):
        watch.saw(of.endpoint_id, judge(ANSWERED, 503, ()), error="", first=True, probing=probing, at=time.monotonic())


ABORT = (("webhook-delivery", "abort-message"),)


def test_a_refusal_that_asks_to_abort_ends_the_tries_also_after_an_attempt_that_may_have_been_taken() -> None:
    to = endpoint()
    (one,) = accepted(to)
    settle(claimed(), None, watch=Watch())
    make_due()
    settle(claimed(), 422, ABORT, watch=Watch())
    assert (one.status, one.pointer.due_at) == ("unknown", None)
    assert reconcile._schedule() == 0, "its receiver said that it is not to be tried again"


def version(of: Endpoint) -> str:
    """Changes with every write to the state's row, and with every lock of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ctid::text || ' ' || xmin::text || ' ' || xmax::text FROM deliveries_endpoint_state"
            " WHERE endpoint_id = %s",
            [of.pk],
        )
        ((found,),) = cursor.fetchall()
    return str(found)


def empty_bucket(rate: float = 1.0) -> Endpoint:
    to = endpoint(rate_per_second=rate, rate_burst=1)
    accepted(to, 3)
    claimed()
    change(to, allowance=0.0, refilled_at=ago(0))
    return to


def test_an_empty_bucket_is_neither_locked_nor_written() -> None:
    to = empty_bucket(rate=0.001)
    before = version(to)
    assert [claimed(), claimed(owner="other/1/a")] == [[], []]
    assert version(to) == before


def test_a_dispatcher_that_only_waits_for_a_rate_limit_knows_for_how_long() -> None:
    empty_bucket(rate=0.1)
    empty_bucket(rate=0.01)
    walk = Walk()
    assert claiming.claim(walk, owner=OWNER, batch=100, ttl_ms=TTL_MS) == ([], Found.PACED)
    assert 8 < walk.token_in_s <= 10
    other = endpoint()
    accepted(other)
    assert claiming.claim(walk, owner=OWNER, batch=100, ttl_ms=TTL_MS)[1] is Found.WORK


def test_endpoints_with_an_empty_bucket_take_no_share_of_the_batch() -> None:
    for _ in range(9):
        empty_bucket(rate=0.001)
    to = endpoint(in_flight=50)
    accepted(to, 50)
    assert len(claimed(batch=50)) == 50


def test_a_new_bucket_is_full() -> None:
    to = endpoint(rate_per_second=0.01, rate_burst=3)
    accepted(to, 5)
    assert claimed() == [], "its row is made"
    assert len(claimed()) == 3


def test_a_clock_that_was_set_back_takes_nothing_out_of_a_bucket() -> None:
    to = endpoint(rate_per_second=1.0, rate_burst=3)
    accepted(to, 5)
    claimed()
    change(to, allowance=2.0, refilled_at=ago(-3600))
    assert len(claimed()) == 2


def test_what_keeps_a_breaker_open_is_written_down_before_more_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when other news was written down a moment ago."""
    clock = 1000.0
    monkeypatch.setattr("deliveries.health.time.monotonic", lambda: clock)
    to, watch = endpoint(), Watch()
    accepted(to)
    settle(claimed(), 503, watch=watch)
    clock += URGENT_EVERY_S
    tell(to, watch, 10)
    watch.write()
    assert state(to).opens == 1
    change(to, open_until=ago(1))
    clock += URGENT_EVERY_S
    tell(to, watch, probing=True)
    watch.write()
    assert state(to).opens == 2


def test_one_sick_answer_waits_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr("deliveries.health.time.monotonic", lambda: clock)
    to, watch = endpoint(), Watch()
    accepted(to)
    settle(claimed(), 503, watch=watch)
    clock += 0.9 * WRITE_EVERY_S
    tell(to, watch)
    watch.write()
    assert state(to).failures_in_a_row == 1
    clock += 0.2 * WRITE_EVERY_S
    watch.write()
    assert state(to).failures_in_a_row == 2


def test_a_persons_retry_of_what_was_not_to_be_tried_again_is_followed_up_when_its_worker_is_lost() -> None:
    to = endpoint()
    (one,) = accepted(to)
    settle(claimed(), 500, ABORT, watch=Watch())
    make_due()
    for table in ("ledger_operation", "ledger_dispatch"):
        ledger_rows.change(table, {"operation_key": one.operation_key}, due_at=ago(1))
    assert len(claimed()) == 1
    lost(one)
    assert reconcile._schedule() == 1


def test_an_acceptance_after_a_failure_is_not_lost_with_the_end_of_a_slice() -> None:
    """Or an endpoint that takes each delivery at the second try would one day be disabled."""
    to, watch = endpoint(), Watch()
    accepted(to)
    settle(claimed(), 503, watch=watch)
    make_due()
    settle(claimed(), 200, watch=watch)
    watch.write(last=True)
    assert (state(to).failing_since, state(to).failures_in_a_row) == (None, 0)


def test_a_secret_that_does_not_open_is_said_once_and_not_for_every_delivery(caplog: pytest.LogCaptureFixture) -> None:
    to = endpoint()
    accepted(to, 3)
    Endpoint.objects.filter(pk=to.pk).update(secret_sealed="0123456789ab.AAAA")
    now = time.monotonic()
    found = claimed()
    answers = [sending.prepared(delivery, now=now, timeout_ms=1000) for delivery in found]
    assert answers == [sending.GivenBack(sending.SEALED_PAUSE_S)] * 3
    assert caplog.text.count(ids.render(ids.ENDPOINT, to.pk)) == 1
    assert sending.prepared(found[0], now=now + sending.SEALED_PAUSE_S, timeout_ms=1000) == answers[0]
    assert caplog.text.count(ids.render(ids.ENDPOINT, to.pk)) == 2
