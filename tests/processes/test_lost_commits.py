"""A COMMIT whose answer is lost, and one that never arrives: both look alike to who sent it, and both come out true.

Real processes reach PostgreSQL through a proxy, which cuts the connection just before the COMMIT goes on to the server
or just after the server has committed. Endpoints do not drop duplicates, so a second arrival would be a fault.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from django.conf import settings

from deliveries.keys import new_key
from deliveries.models import Event, Scope
from ledger.models import FencedWrite, Lease
from relay import roles
from tests.support import database
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, endpoint, events, submitted, succeeded
from tests.support.proxy import Fault, Proxy, Where
from tests.support.sink import Sink
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until
from tests.support.web import Web

pytestmark = [
    pytest.mark.usefixtures("emptied"),
    pytest.mark.skipif(not settings.RELAY_EMBEDDED, reason="the proxy logs in as the runtime role without a password"),
]

SOON_S = 20.0
BOTH = pytest.mark.parametrize("where", [Where.BEFORE_COMMIT, Where.AFTER_COMMIT])


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    parameters = database.login()
    with Proxy(Path(parameters["host"]) / f".s.PGSQL.{parameters['port']}") as running:
        yield running


def through(proxy: Proxy) -> str:
    return proxy.url(dbname=database.login()["dbname"], user=roles.RUNTIME)


def assert_delivered_once(one: Watched, sink: Sink) -> None:
    assert sink.events == {one.webhook_id: 1}
    assert [(attempt.number, attempt.late, attempt.classification) for attempt in one.attempts] == [
        (1, False, "accepted")
    ]
    assert (one.operation.attempts, one.operation.ambiguous) == (1, False)
    assert one.run.status == "succeeded"
    assert not Lease.objects.exclude(owner=None).exists()
    assert not FencedWrite.objects.exists(), "nobody was refused: what was written was the writer's own"


@BOTH
@pytest.mark.parametrize("statement", ["operation.claim", "operation.settle"])
def test_a_claim_or_a_settle_is_done_once_whether_its_commit_was_lost_or_only_the_answer(
    tenant: str, proxy: Proxy, where: Where, statement: str
) -> None:
    with Sink() as sink, Consumer(DATABASE_URL=through(proxy)):
        sweeps = Sweeps(tenant)
        endpoint(tenant, sink.url, idempotent=False)
        fault = proxy.plan(Fault(where, statement))
        (one,) = submitted(events(tenant))
        wait_until(lambda: succeeded(one), SOON_S, "delivered")
        assert fault.fired == 1
        wait_until(lambda: one.lease.owner is None, SOON_S, "the lease is given back")
        sweeps.wait_for(2)
    assert_delivered_once(one, sink)


@BOTH
@pytest.mark.parametrize("statement", ["operation.claim", "operation.settle"])
def test_a_backlog_comes_through_a_connection_that_is_cut_at_many_commits(
    tenant: str, proxy: Proxy, where: Where, statement: str
) -> None:
    with Sink() as sink, Consumer(DATABASE_URL=through(proxy)):
        endpoint(tenant, sink.url, idempotent=False)
        fault = proxy.plan(Fault(where, statement, probability=0.3, seed=7, times=12))
        watched = submitted(events(tenant, 300))
        wait_until(lambda: all(one.status == "succeeded" for one in watched), 2 * SOON_S, "all delivered")
        assert fault.fired > 2
    assert sink.events == {one.webhook_id: 1 for one in watched}
    assert not FencedWrite.objects.exists()


@BOTH
def test_a_renewal_whose_answer_was_lost_is_asked_for_again_and_the_send_goes_on(
    tenant: str, proxy: Proxy, where: Where
) -> None:
    with Sink(held=True) as sink, Consumer(DATABASE_URL=through(proxy)):
        endpoint(tenant, sink.url, idempotent=False)
        fault = proxy.plan(Fault(where, "lease.renew"))
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        wait_until(lambda: fault.fired, SOON_S, "a heartbeat was cut")
        assert sink.let_go() == 1, "the send was not given up"
        wait_until(lambda: succeeded(one), SOON_S, "delivered")
    assert_delivered_once(one, sink)


@BOTH
def test_a_sweep_that_found_a_lost_claim_does_it_once(tenant: str, proxy: Proxy, where: Where) -> None:
    with Sink(held=True) as sink, Consumer(DATABASE_URL=through(proxy)):
        sweeps = Sweeps(tenant)
        endpoint(tenant, sink.url, idempotent=False)
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        lost = one.owner
        # Every sweep runs the statement; only the one that found something also records an attempt.
        fault = proxy.plan(Fault(where, "attempt.record"))
        os.kill(pid_of(lost), signal.SIGKILL)
        wait_until(lambda: fault.fired and one.status == "unknown", NOTICED_S, "the reconciler found the claim")
        sweeps.wait_for(3)
    assert "unknown.expire_claims" in fault.cut[0]
    assert sink.events == {one.webhook_id: 1}
    assert one.status == "unknown", "nothing proves that it was taken, and it is not sent again"
    assert [attempt.classification for attempt in one.attempts] == ["worker_lost"]
    assert [takeover.previous_owner for takeover in one.takeovers] == [lost]
    assert not FencedWrite.objects.exists()


@BOTH
def test_a_producer_that_asks_again_with_the_same_key_has_one_event(tenant: str, proxy: Proxy, where: Where) -> None:
    key = new_key("a producer", [Scope.EVENTS_WRITE.value], tenant)[1]
    web = Web()
    web.environment["DATABASE_URL"] = through(proxy)
    with Sink() as sink, web, Consumer():
        sweeps = Sweeps(tenant)
        endpoint(tenant, sink.url, idempotent=False)
        fault = proxy.plan(Fault(where, "event.accept"))
        answers = [
            requests.post(
                f"{web.url}/v1/events",
                json={"type": "invoice.paid", "data": {"number": 1}},
                headers={"Authorization": f"Bearer {key}", "Idempotency-Key": "once"},
                timeout=10,
            )
            for _ in range(3)
        ]
        assert fault.fired == 1
        assert answers[0].status_code >= 500, "nobody knew whether it was stored, so nobody said that it was"
        assert [answer.status_code for answer in answers[1:]] == [202, 202]
        replayed = [answer.headers.get("Idempotent-Replayed") == "true" for answer in answers[1:]]
        assert replayed == [where is Where.AFTER_COMMIT, True]
        wait_until(lambda: len(sink.requests) >= 1, SOON_S, "delivered")
        sweeps.wait_for(2)
    assert Event.objects.filter(tenant_id=tenant, idempotency_key="once").count() == 1
    assert len({answer.json()["id"] for answer in answers[1:]}) == 1
    assert sink.events == {answers[1].json()["id"]: 1}
