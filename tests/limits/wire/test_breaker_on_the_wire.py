"""A breaker seen from the receiver's side: a sick one with much to get is called rarely, and served when it is well."""

from __future__ import annotations

import pytest

from deliveries import health
from deliveries.models import EndpointState
from tests.receiver import Answer, Received, Receiver
from tests.support import deliveries
from tests.support.consumer import Consumer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

BACKLOG = 400
WINDOW = 4


def test_a_sick_receiver_with_a_backlog_is_spared_and_served_when_it_is_well_again(tenant: str) -> None:
    well = False

    def answer(_: Received) -> Answer:
        return Answer(200 if well else 503)

    with Receiver(answer) as receiver, Receiver() as other, Consumer(2):
        sick, _ = deliveries.endpoint(
            tenant, receiver.url, types=["sick"], in_flight=WINDOW, retry_schedule=[1] * 50, retry_jitter=0.0
        )
        deliveries.endpoint(tenant, other.url, types=["other"])
        deliveries.submitted(deliveries.events(tenant, BACKLOG, type="sick"))
        wait_until(lambda: EndpointState.objects.filter(pk=sick.pk, opens=1).exists(), 20, "the breaker opened")
        # What was claimed before the dispatchers had the news still went out: less than the backlog by far.
        called = len(receiver.requests)
        assert called < BACKLOG / 2

        deliveries.submitted(deliveries.events(tenant, 20, type="other"))
        other.wait_for(20)

        wait_until(lambda: EndpointState.objects.filter(pk=sick.pk, opens__gte=2).exists(), 20, "it was tried once")
        assert len(receiver.requests) - called <= 2 * WINDOW, "tried by one at a time"

        well = True
        wait_until(lambda: not deliveries.unsettled(tenant), 60, "everything was delivered")
        assert health.state_of([sick.pk])[sick.pk].breaker == "closed"
