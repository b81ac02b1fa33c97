"""A port that refuses at once is the fastest way in which a receiver can fail: it must not burn up its backlog."""

from __future__ import annotations

import os
import time

import pytest

from deliveries.models import Attempt, EndpointState
from ledger.models import Operation
from tests.receiver import Receiver
from tests.support import deliveries
from tests.support.consumer import Consumer
from tests.support.sink import reserve
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

SOAK = os.environ.get("RELAY_SOAK") == "1"
BACKLOG, SECONDS = (50_000, 60) if SOAK else (2_000, 8)
WORKERS, WINDOW, FAILURES = 4, 16, 10
PATIENT = {"RELAY_LEASE_TTL_MS": "30000", "RELAY_HEARTBEAT_MS": "5000", "RELAY_HTTP_TIMEOUT_MS": "15000"}


def test_a_dead_endpoint_with_thousands_due_costs_few_attempts_and_delays_no_other(tenant: str) -> None:
    well = deliveries.tenant()
    with reserve() as port, Receiver() as receiver:
        dead, _ = deliveries.endpoint(
            tenant, f"http://127.0.0.1:{port.getsockname()[1]}/", retry_schedule=[3600], in_flight=WINDOW
        )
        deliveries.endpoint(well, receiver.url)
        for _ in range(BACKLOG // 500):
            deliveries.submitted_in_silence(deliveries.events(tenant, 500))

        def opens() -> int:
            state = EndpointState.objects.filter(pk=dead.pk).first()
            return state.opens if state else 0

        with Consumer(WORKERS, **PATIENT):
            wait_until(opens, 30, "the breaker opened")
            at_first, began, longest = deliveries.attempts_of(tenant), time.monotonic(), 0.0
            while time.monotonic() < began + SECONDS:
                seen, submitted_at = len(receiver.requests), time.monotonic()
                deliveries.submitted(deliveries.events(well))
                receiver.wait_for(seen + 1)
                longest = max(longest, receiver.requests[seen].at - submitted_at)
                time.sleep(0.05)
            in_the_end, tries = deliveries.attempts_of(tenant), opens() - 1
        mine = Operation.objects.filter(run__task__tenant_id=tenant)
        untouched = mine.filter(status="prepared", attempts=0).count()
    print(
        f"\n{at_first} attempts until it opened, {in_the_end - at_first} more in {SECONDS} s ({tries} tries); "
        f"the other's slowest {1000 * longest:.0f} ms"
    )
    assert at_first <= FAILURES + WORKERS * WINDOW
    assert tries >= 1
    assert in_the_end - at_first <= WORKERS * WINDOW + tries * 2 * WORKERS
    assert untouched >= BACKLOG - in_the_end
    numbers = Attempt.objects.filter(operation_key__in=mine.values("operation_key")).values_list("number", flat=True)
    assert set(numbers) == {1}
    assert longest < 5
