"""Receivers that never answer, and names that never resolve, do not hold up the others: seen through the dispatcher."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.egress import EgressPolicy
from deliveries.models import Endpoint
from deliveries.transport.curl import CurlTransport
from tests.receiver import LONGEST_HANG, Receiver
from tests.support import deliveries
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

HANGING = 40
SAMPLES = 15


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set at the end, so that no look-up of a test outlives it."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def engine(emptied: None, never: threading.Event) -> Iterator[Engine]:
    def look_up(host: str) -> tuple[str, ...]:
        assert never.wait(LONGEST_HANG)
        return ()

    transport = CurlTransport(EgressPolicy.from_settings(), look_up=look_up)
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.abort(list(range(1_000_000)))
    transport.close()


def turn_until(engine: Engine, condition: object, what: str) -> None:
    def holds() -> object:
        engine._turn(claiming=True, tick=lambda: False)
        return condition()  # type: ignore[operator]

    wait_until(holds, 20, what)


def latencies(engine: Engine, tenant: str, good: Receiver) -> list[float]:
    """Seconds from an event's submission to its arrival, one at a time."""
    found = []
    for _ in range(SAMPLES):
        seen, begun = len(good.requests), time.monotonic()
        deliveries.submitted(deliveries.events(tenant, type="good"))
        engine._look_at = 0.0  # it was rung for
        turn_until(engine, lambda seen=seen: len(good.requests) > seen, "a healthy endpoint was served")
        found.append(good.requests[seen].at - begun)
    return found


def compare(engine: Engine, tenant: str, good: Receiver, held: int) -> None:
    """Alone, and while at least `held` deliveries to the others are out."""
    deliveries.endpoint(tenant, good.url, types=["good"])
    Endpoint.objects.filter(tenant_id=tenant, types=["bad"]).update(enabled=False)
    latencies(engine, tenant, good)
    alone = latencies(engine, tenant, good)
    Endpoint.objects.filter(tenant_id=tenant, types=["bad"]).update(enabled=True)
    turn_until(engine, lambda: len(engine.held) >= held, "the others are out")
    beside = latencies(engine, tenant, good)
    assert len(engine.held) >= held, "they still are"
    print(
        f"\n{held} deliveries out: a healthy endpoint alone {1000 * statistics.median(alone):.1f} ms (worst "
        f"{1000 * max(alone):.1f}), beside them {1000 * statistics.median(beside):.1f} ms (worst "
        f"{1000 * max(beside):.1f})"
    )
    assert statistics.median(beside) < 3 * statistics.median(alone) + 0.1
    assert max(beside) < 5.0, "nothing waits for a deadline of the others"


def test_receivers_that_never_answer(tenant: str, engine: Engine) -> None:
    with Sink(held=True) as hanging, Receiver() as good:
        for number in range(HANGING):
            deliveries.endpoint(tenant, f"{hanging.url}{number}", types=["bad"], timeout_ms=15_000)
        deliveries.submitted(deliveries.events(tenant, 20, type="bad"))
        compare(engine, tenant, good, HANGING * 16)


def test_one_receiver_that_never_answers_with_a_window_of_a_thousand(tenant: str, engine: Engine) -> None:
    with Sink(held=True) as hanging, Receiver() as good:
        deliveries.endpoint(tenant, hanging.url, types=["bad"], in_flight=1_000, timeout_ms=15_000)
        deliveries.submitted(deliveries.events(tenant, 1_000, type="bad"))
        compare(engine, tenant, good, 900)


def test_names_that_never_resolve(tenant: str, engine: Engine) -> None:
    with Receiver() as good:
        for number in range(HANGING):
            _, _ = deliveries.endpoint(
                tenant, f"http://127.0.0.1:9/{number}", types=["bad"], connect_timeout_ms=15_000, timeout_ms=15_000
            )
            Endpoint.objects.filter(tenant_id=tenant, url=f"http://127.0.0.1:9/{number}").update(
                url=f"https://silent-{number}.customer.com/"
            )
        deliveries.submitted(deliveries.events(tenant, 20, type="bad"))
        compare(engine, tenant, good, HANGING * 16)
