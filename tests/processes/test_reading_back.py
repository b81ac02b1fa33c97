"""A COMMIT whose answer was lost may have been made: a dispatcher reads back before it begins anything else.

The connection is cut for real. What the lost transaction did is done beforehand by a second connection with the same
owner, so that it is certain that it was committed and certain that this dispatcher was not told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections

from deliveries.dispatch import settling
from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.egress import EgressPolicy
from deliveries.transport.curl import CurlTransport
from ledger.managers import operation
from ledger.models import FencedWrite, Lease
from ledger.statements import in_transaction
from tests.receiver import Answer, Receiver
from tests.support.database import unguarded
from tests.support.deliveries import endpoint, events, submitted
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

OWNER = "here:1:0"


@pytest.fixture
def engine() -> Iterator[Engine]:
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner=OWNER, transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


def elsewhere(work: Callable[[], object]) -> None:
    """Do something in another thread, and so on another connection."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def cut_our_connection() -> None:
    """End this thread's backend from outside: the next statement finds out."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone() or (None,)

    def cut() -> None:
        with unguarded(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

    elsewhere(cut)


def turn(engine: Engine, until: Callable[[], bool], *, claiming: bool = True) -> None:
    """Let it work, at first without a look of our own: it is the engine that must find its connection cut."""
    deadline = time.monotonic() + 20
    engine._turn(claiming=claiming, tick=lambda: False)
    while not until():
        assert time.monotonic() < deadline
        engine._turn(claiming=claiming, tick=lambda: False)


def one_turn(engine: Engine, *, orphaned: bool = False) -> None:
    """A slice whose time is over after its first turn."""
    engine.run(
        until=time.monotonic() + 0.05,
        stopping=lambda: False,
        orphaned=lambda: orphaned,
        tick=lambda: False,
        hand_over=lambda: None,
    )


def test_a_claim_whose_answer_was_lost_is_given_back_unsent_and_then_sent_once(tenant: str, engine: Engine) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url, idempotent=False)
        (one,) = submitted(events(tenant))
        elsewhere(lambda: in_transaction(lambda: operation.claim([one.operation_key], owner=OWNER, ttl_ms=30_000)))
        assert (one.status, one.operation.attempts, one.owner) == ("dispatching", 1, OWNER)
        cut_our_connection()
        turn(engine, lambda: one.status == "succeeded")

    assert sink.events == {one.webhook_id: 1}
    assert [attempt.number for attempt in one.attempts] == [1]
    assert (one.operation.attempts, one.operation.ambiguous) == (1, False)
    assert not FencedWrite.objects.exists()


def test_a_claim_whose_answer_was_lost_in_a_slices_last_turn_is_given_back_before_the_slice_ends(
    tenant: str, engine: Engine
) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url, idempotent=False)
        (one,) = submitted(events(tenant))
        elsewhere(lambda: in_transaction(lambda: operation.claim([one.operation_key], owner=OWNER, ttl_ms=30_000)))
        cut_our_connection()
        one_turn(engine)

    assert not sink.requests
    assert (one.status, one.operation.attempts, one.lease.owner) == ("prepared", 0, None)
    assert not engine.leaves_claims


def test_a_slice_that_could_not_read_back_leaves_what_it_may_have_claimed_to_the_reconciler(
    tenant: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint(tenant, "http://127.0.0.1:9/")
    (one,) = submitted(events(tenant))
    elsewhere(lambda: in_transaction(lambda: operation.claim([one.operation_key], owner=OWNER, ttl_ms=30_000)))
    with monkeypatch.context() as away:
        away.setitem(connection.settings_dict, "HOST", "/nowhere")
        connection.close()
        one_turn(engine, orphaned=True)
    connection.close()

    assert one.status == "dispatching"
    assert engine.leaves_claims, "so its session ends, and nobody takes the claim for one that was not sent"


def test_a_settle_whose_answer_was_lost_is_not_offered_again(tenant: str, engine: Engine) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        engine.claim()
        engine.send()
        deadline = time.monotonic() + 20
        while not (outcomes := engine.transport.poll(0.05)):
            assert time.monotonic() < deadline
        for outcome in outcomes:
            engine._report(engine.held[outcome.key], outcome)
        elsewhere(lambda: settling.settle(list(engine.reports), owner=OWNER))
        assert one.status == "succeeded"
        cut_our_connection()
        turn(engine, lambda: not engine.held, claiming=False)

    assert not engine.reports
    assert [attempt.late for attempt in one.attempts] == [False]
    assert not FencedWrite.objects.exists(), "what was ours and was written is no fenced write"


def test_an_answer_that_belongs_to_an_older_claim_does_not_make_the_dispatcher_forget_the_newer_one(
    tenant: str, engine: Engine
) -> None:
    """Settled elsewhere with a refusal, and due again at once: the old report and the new claim must not meet."""
    with Receiver() as receiver:
        receiver.answers += [Answer(503), Answer(200)]
        endpoint(tenant, receiver.url)
        (one,) = submitted(events(tenant))
        engine.claim()
        engine.send()
        deadline = time.monotonic() + 20
        while not (outcomes := engine.transport.poll(0.05)):
            assert time.monotonic() < deadline
        for outcome in outcomes:
            engine._report(engine.held[outcome.key], outcome)
        elsewhere(lambda: settling.settle(list(engine.reports), owner=OWNER))
        wait_until(lambda: one.operation.due_at is not None, 5, "the next attempt planned")
        cut_our_connection()
        turn(engine, lambda: one.status == "succeeded")

    assert [(attempt.number, attempt.http_status) for attempt in one.attempts] == [(1, 503), (2, 200)]
    assert not Lease.objects.exclude(owner=None).exists()
