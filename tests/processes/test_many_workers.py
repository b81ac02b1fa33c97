"""Many workers on one backlog: each delivery is sent once, whoever gets it."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest
from standardwebhooks.webhooks import Webhook

from deliveries.models import Attempt
from ledger.models import FencedWrite, Operation, Takeover
from tests.support import deliveries
from tests.support.consumer import Consumer, pid_of
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

BACKLOG, ENDPOINTS, BATCH = 5_000, 50, 500
DRAINED_S = 90.0
# Nothing is lost here, so nothing has to be noticed soon; and a busy machine must not look like a lost worker.
PATIENT = {
    "RELAY_LEASE_TTL_MS": "30000",
    "RELAY_HEARTBEAT_MS": "5000",
    "RELAY_HTTP_TIMEOUT_MS": "15000",
    "RELAY_SWEEP_MS": "1000",
}


@pytest.mark.parametrize(
    ("consumers", "dispatchers"),
    [
        pytest.param(1, 2, id="two workers"),
        pytest.param(2, 2, id="two machines"),
        pytest.param(1, 4, id="four workers of one"),
    ],
)
def test_a_backlog_is_delivered_exactly_once_by_however_many_workers(
    tenant: str, consumers: int, dispatchers: int
) -> None:
    with Sink() as sink, ExitStack() as machines:
        secrets = {}
        for number in range(ENDPOINTS):
            _, secret = deliveries.endpoint(tenant, f"{sink.url}{number}", types=[f"type.{number}"], in_flight=64)
            secrets[f"/{number}"] = Webhook(secret)
        running = [machines.enter_context(Consumer(dispatchers, **PATIENT)) for _ in range(consumers)]
        wanted = [
            event
            for number in range(ENDPOINTS)
            for event in deliveries.events(tenant, BACKLOG // ENDPOINTS, type=f"type.{number}")
        ]
        watched = list(
            itertools.chain.from_iterable(
                deliveries.submitted(wanted[at : at + BATCH]) for at in range(0, BACKLOG, BATCH)
            )
        )
        wait_until(lambda: not deliveries.unsettled(tenant), DRAINED_S, "the backlog drained")
        workers = [consumer.children() for consumer in running]

    assert sink.events == {one.webhook_id: 1 for one in watched}
    assert len(watched) == BACKLOG
    for request in sink.requests:
        secrets[request.path].verify(request.body, request.headers)
    mine = Operation.objects.filter(run__task__tenant_id=tenant)
    assert mine.filter(status="succeeded", attempts=1, run__status="succeeded", ambiguous=False).count() == BACKLOG
    assert not mine.exclude(run__lease__owner=None).exists()
    assert Attempt.objects.filter(http_status=200, number=1, late=False).count() == Attempt.objects.count() == BACKLOG
    assert not Takeover.objects.exists()
    assert not FencedWrite.objects.exists()

    owners = {pid_of(owner) for owner in Attempt.objects.values_list("owner", flat=True).distinct()}
    assert len(owners) == consumers * dispatchers, "every dispatcher has done some of it"
    assert all(owners & children for children in workers), "on every machine"
