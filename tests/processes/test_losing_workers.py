"""Workers that are killed while they hold a lease, and consumers that are killed with all they hold."""

from __future__ import annotations

import os
import signal

import pytest

from ledger.models import Lease
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import endpoint, events, submitted
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

SOON_S = 10.0


def test_idle_workers_that_are_killed_are_replaced_and_work_moves_again(tenant: str) -> None:
    with Sink() as sink, Consumer() as consumer:
        endpoint(tenant, sink.url)
        before = consumer.children()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        (one,) = submitted(events(tenant))
        wait_until(lambda: one.status == "succeeded", SOON_S, "delivered by a worker that replaced a killed one")
        wait_until(lambda: len(consumer.children()) == len(before), SOON_S, "every process replaced")
        consumer.wait_until_ready()
        assert not before & consumer.children()
        assert sink.events == {one.webhook_id: 1}


def test_a_busy_worker_that_is_killed_holds_up_nothing_but_what_it_held(tenant: str) -> None:
    with Sink(held=True) as stuck, Sink() as sink, Consumer() as consumer:
        endpoint(tenant, stuck.url, types=["stuck"])
        endpoint(tenant, sink.url, types=["invoice.*"])
        (held,) = submitted(events(tenant, type="stuck"))
        stuck.wait_for(1)
        owner = held.owner
        os.kill(pid_of(owner), signal.SIGKILL)
        others = submitted(events(tenant, 20))
        wait_until(lambda: all(one.status == "succeeded" for one in others), 5, "the others delivered within seconds")
        assert held.lease.owner == owner, "what it held is not touched before its lease has run out"
        consumer.wait_until_ready()
        assert pid_of(owner) not in consumer.children()
        assert sink.events == {one.webhook_id: 1 for one in others}


def test_no_worker_outlives_a_consumer_that_was_killed_and_the_next_one_delivers_everything(tenant: str) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url, in_flight=5)
        with Consumer() as consumer:
            wanted = submitted(events(tenant, 50))
            sink.wait_for(5)
            consumer.kill(signal.SIGKILL)
            assert consumer.wait() == -signal.SIGKILL
            assert sink.let_go() == 5
            wait_until(lambda: not consumer.left(), SOON_S, "no worker left")
            assert len(sink.requests) == 5, "an orphan finishes what is in flight and begins nothing"
            assert not Lease.objects.filter(owner__isnull=False).exists()
        with Consumer():
            wait_until(lambda: all(one.status == "succeeded" for one in wanted), SOON_S, "everything delivered")
        assert sink.events == {one.webhook_id: 1 for one in wanted}


def test_a_machine_that_dies_at_once_loses_no_delivery(tenant: str) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url, in_flight=5)
        with Consumer() as consumer:
            wanted = submitted(events(tenant, 20))
            sink.wait_for(5)
            consumer.kill_all()
            consumer.wait()
        sink.let_go()
        with Consumer():
            wait_until(lambda: all(one.status == "succeeded" for one in wanted), NOTICED_S, "everything delivered")
        twice = {webhook_id for webhook_id, count in sink.events.items() if count == 2}
        assert set(sink.events) == {one.webhook_id for one in wanted}
        assert max(sink.events.values()) == 2
        assert twice == {one.webhook_id for one in wanted if one.takeovers}
        assert len(twice) == 5
