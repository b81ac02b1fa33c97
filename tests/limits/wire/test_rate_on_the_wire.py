"""A rate limit seen from the receiver's side: four workers share one bucket, and the others do not notice."""

from __future__ import annotations

import os
import statistics
import time

import pytest

from deliveries.models import Attempt
from ledger.models import Operation
from tests.receiver import Receiver
from tests.support import deliveries
from tests.support.consumer import Consumer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

SOAK = bool(os.environ.get("RELAY_SOAK"))
RATE = 10.0
SECONDS, TOLERANCE = (60.0, 0.10) if SOAK else (10.0, 0.15)
SAMPLES, EVERY_S = (200, 0.05) if SOAK else (40, 0.05)
PATIENT = {"RELAY_LEASE_TTL_MS": "30000", "RELAY_HEARTBEAT_MS": "5000", "RELAY_HTTP_TIMEOUT_MS": "15000"}


def latencies(tenant: str, receiver: Receiver) -> list[float]:
    """Seconds from before an event was submitted to its arrival, one event at a time."""
    found = []
    for _ in range(SAMPLES):
        seen, began = len(receiver.requests), time.monotonic()
        deliveries.submitted(deliveries.events(tenant, type="other"))
        receiver.wait_for(seen + 1)
        found.append(receiver.requests[seen].at - began)
        time.sleep(EVERY_S)
    return found


def test_ten_a_second_are_ten_a_second_with_four_workers_and_cost_the_others_nothing(tenant: str) -> None:
    with Receiver() as limited, Receiver() as other, Consumer(4, **PATIENT):
        deliveries.endpoint(tenant, other.url, types=["other"])
        deliveries.endpoint(tenant, limited.url, types=["limited"], rate_per_second=RATE)
        latencies(tenant, other)  # the first ones open connections
        without = latencies(tenant, other)

        backlog = deliveries.submitted(deliveries.events(tenant, round(RATE * (SECONDS + 60)), type="limited"))
        limited.wait_for(round(2 * RATE))
        begun = time.monotonic()
        beside = latencies(tenant, other)
        wait_until(lambda: time.monotonic() >= begun + SECONDS, SECONDS + 10, "the time is over")
        arrived = [one for one in list(limited.requests) if begun <= one.at < begun + SECONDS]

        rate = len(arrived) / SECONDS
        print(
            f"\nlimited to {RATE:g}/s: {rate:.2f}/s over {SECONDS:g} s; another endpoint's latency alone "
            f"{1000 * statistics.median(without):.1f} ms, beside it {1000 * statistics.median(beside):.1f} ms"
        )
        assert abs(rate - RATE) <= TOLERANCE * RATE
        assert {one.headers["relay-attempt"] for one in limited.requests} == {"1"}
        waiting = Operation.objects.filter(operation_key__in=[one.operation_key for one in backlog], status="prepared")
        assert set(waiting.values_list("attempts", flat=True)) == {0}
        assert not Attempt.objects.filter(operation_key__in=waiting.values("operation_key")).exists()
        assert statistics.median(beside) < 10 * statistics.median(without) + 0.1
