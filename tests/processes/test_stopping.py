"""A consumer that is told to stop: what is in flight settles, the rest is given back, nothing is sent twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.egress import EgressPolicy
from deliveries.transport.curl import CurlTransport
from ledger.models import FencedWrite, Lease, Takeover
from tests.support.consumer import Consumer
from tests.support.deliveries import attempts_of, endpoint, events, submitted
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

IN_FLIGHT, BACKLOG = 4, 20
SOON_S = 10.0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_a_stop_settles_what_is_in_flight_and_leaves_the_rest_as_it_was(tenant: str, signum: signal.Signals) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url, in_flight=IN_FLIGHT)
        with Consumer() as consumer:
            wanted = submitted(events(tenant, BACKLOG))
            sink.wait_for(IN_FLIGHT)
            consumer.kill(signum)
            wait_until(
                lambda: len(consumer.children()) < consumer.processes, SOON_S, "the stop is under way: the idle go"
            )
            consumer.kill(signum)  # an impatient second one changes nothing
            assert sink.let_go() == IN_FLIGHT
            assert consumer.wait() == 0
            assert not consumer.left()

        sent = set(sink.events)
        assert len(sent) == len(sink.requests) == IN_FLIGHT
        for one in wanted:
            if one.webhook_id in sent:
                assert (one.status, one.operation.attempts) == ("succeeded", 1)
            else:
                assert (one.status, one.operation.attempts, one.operation.ambiguous) == ("prepared", 0, False)
                assert one.pointer.until is None
        assert not Lease.objects.exclude(owner=None).exists()
        assert attempts_of(tenant) == IN_FLIGHT

        with Consumer():
            wait_until(lambda: all(one.status == "succeeded" for one in wanted), SOON_S, "the rest delivered")
        assert sink.events == {one.webhook_id: 1 for one in wanted}
    assert attempts_of(tenant) == BACKLOG
    assert not Takeover.objects.exists()
    assert not FencedWrite.objects.exists()


def test_a_stop_with_nothing_to_do_is_quick(tenant: str) -> None:
    with Consumer() as consumer:
        consumer.kill(signal.SIGTERM)
        assert consumer.wait(5) == 0
        assert not consumer.left()


def test_a_receiver_that_stays_silent_does_not_hold_up_a_stop_beyond_the_deadline(tenant: str) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url, idempotent=False)
        with Consumer() as consumer:
            (one,) = submitted(events(tenant))
            sink.wait_for(1)
            consumer.kill(signal.SIGTERM)
            assert consumer.wait() == 0
    assert one.status == "unknown"
    assert one.lease.owner is None
    assert [attempt.classification for attempt in one.attempts] == ["unknown"]


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A dispatcher in this process, between two of its moves."""
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


def test_what_is_claimed_but_not_sent_is_given_back_at_no_cost(tenant: str, engine: Engine) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        engine.claim()
        assert (one.status, one.operation.attempts, one.lease.owner) == ("dispatching", 1, "here:1:0")
        engine.drain()
        assert not sink.requests

    assert (one.status, one.operation.attempts, one.operation.ambiguous) == ("prepared", 0, False)
    assert one.lease.owner is None
    assert one.lease.epoch == 1, "a term that was begun is never undone"
    assert not one.attempts
    assert one.run.status == "running"


def test_what_is_claimed_but_not_sent_while_others_are_in_flight_is_given_back_first(
    tenant: str, engine: Engine
) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url)
        (flying,) = submitted(events(tenant))
        engine.claim()
        engine.send()
        while not sink.requests:
            engine.transport.poll(0.05)
        (waiting,) = submitted(events(tenant))
        engine._look_at = 0.0
        engine.claim()
        assert {flying.status, waiting.status} == {"dispatching"}
        assert sink.let_go() == 1
        engine.drain()

    assert (flying.status, flying.operation.attempts) == ("succeeded", 1)
    assert (waiting.status, waiting.operation.attempts) == ("prepared", 0)
    assert sink.events == {flying.webhook_id: 1}
    assert not Lease.objects.exclude(owner=None).exists()
