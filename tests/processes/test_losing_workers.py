"""Workers that are killed while they hold a lease, and consumers that are killed with all they hold."""

from __future__ import annotations

import os
import signal

import pytest

from deliveries import reconcile
from deliveries.models import Verdict
from ledger.models import Lease
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.programs import suspend
from tests.support.sink import Sink
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

SOON_S = 10.0


def answered_and_killed(one: Watched, sink: Sink) -> str:
    """Kill the worker between the receiver's answer and the write of it; the owner that it was."""
    owner = one.owner
    suspend(pid_of(owner))
    assert sink.let_go() == 1
    os.kill(pid_of(owner), signal.SIGKILL)
    assert one.rows()["lease"]["owner"] == owner
    return owner


def test_what_a_killed_worker_may_have_sent_is_sent_again_under_the_same_id_to_an_idempotent_endpoint(
    tenant: str,
) -> None:
    with Sink(held=True) as sink, Consumer():
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        lost = answered_and_killed(one, sink)
        wait_until(lambda: one.status == "succeeded", NOTICED_S, "delivered by another worker")
        first, second = (request.headers for request in sink.requests)

    assert first["webhook-id"] == second["webhook-id"] == one.webhook_id
    assert first["idempotency-key"] == second["idempotency-key"] == one.operation_id
    assert int(second["relay-epoch"]) > int(first["relay-epoch"])
    assert (first["relay-attempt"], second["relay-attempt"]) == ("1", "2")

    (takeover,) = one.takeovers
    assert takeover.previous_owner == lost
    assert takeover.owner != lost
    assert takeover.epoch > int(first["relay-epoch"])
    assert takeover.taken_at >= takeover.previous_expired_at

    missing, accepted = one.attempts
    assert (missing.classification, missing.verdict, missing.owner) == (reconcile.LOST, Verdict.UNKNOWN, lost)
    assert (missing.number, missing.ended_at, missing.http_status) == (1, None, None)
    assert (accepted.classification, accepted.number, accepted.late) == ("accepted", 2, False)
    assert accepted.owner != lost
    assert one.operation.ambiguous
    assert one.run.status == "succeeded"


def test_what_a_killed_worker_may_have_sent_stays_unknown_for_an_endpoint_that_promises_nothing(tenant: str) -> None:
    sweeps = Sweeps(tenant)
    with Sink(held=True) as sink, Consumer():
        endpoint(tenant, sink.url, idempotent=False, types=["invoice.*"])
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        lost = answered_and_killed(one, sink)
        wait_until(lambda: one.status == "unknown", NOTICED_S, "found by the reconciler")
        before = one.rows()
        sweeps.wait_for(4)
        assert sink.events == {one.webhook_id: 1}

    assert one.rows() == before
    assert one.run.status == "running"
    assert one.pointer.due_at is None
    assert one.pointer.unknown_since is not None
    assert [takeover.previous_owner for takeover in one.takeovers] == [lost]
    (attempt,) = one.attempts
    assert (attempt.classification, attempt.ended_at, attempt.owner) == (reconcile.LOST, None, lost)


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
