"""Workers that stand still while they hold a lease or a lock, and go on after others have gone past them."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connection, transaction

from tests.support import database
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import endpoint, events, submitted, submitted_in_silence
from tests.support.programs import suspend
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

SOON_S = 10.0


def test_an_answer_that_comes_to_be_written_after_a_takeover_is_kept_as_evidence_and_moves_nothing(
    tenant: str,
) -> None:
    """The worker stands in the queue for the lock of one lease while its lease of the other runs out."""
    with Sink(held=True) as sink, Consumer(dispatchers=1) as slow:
        endpoint(tenant, sink.url)
        one, other = sorted(submitted(events(tenant, 2)), key=lambda each: each.run_id)
        sink.wait_for(2)
        late, late_epoch = other.owner, other.lease.epoch
        assert one.owner == late
        assert pid_of(late) in slow.children()
        suspend(pid_of(late))
        with transaction.atomic():
            # Leases of a batch are locked in the order of their runs: this one first, and the other not yet.
            database.lock("ledger_lease", "run_id", one.run_id)
            assert sink.let_go() == 2
            os.kill(pid_of(late), signal.SIGCONT)
            # To settle, or to renew first when a heartbeat is due just then.
            waits = partial(_waiting_for_a_lock, "operation.settle", "lease.renew")
            wait_until(waits, SOON_S, "the worker waits for the lock")
            suspend(pid_of(late))  # so that it cannot do anything else when the lock is free
            with Consumer(dispatchers=1):
                wait_until(lambda: other.status == "succeeded", NOTICED_S, "the other one taken over and delivered")
            before = other.rows()
        os.kill(pid_of(late), signal.SIGCONT)
        wait_until(lambda: other.fenced_writes, SOON_S, "the late write was refused")
        wait_until(lambda: other.attempts[0].late, SOON_S, "the attempt is marked late")
        wait_until(lambda: one.status == "succeeded", NOTICED_S, "the one that was locked is delivered as well")

    assert other.rows() == before
    (write,) = (write for write in other.fenced_writes if write.statement == "operation.settle")
    assert (write.reason, write.owner, write.epoch) == ("lease_lost", late, late_epoch)
    assert write.seen_epoch == before["lease"]["epoch"] > late_epoch
    assert write.seen_status == "succeeded"
    assert write.evidence is not None
    assert write.evidence["http_status"] == 200
    assert write.evidence["classification"] == "accepted"
    first, second = other.attempts
    assert (first.late, first.http_status, first.owner, first.epoch) == (True, 200, late, late_epoch)
    assert (second.late, second.http_status) == (False, 200)
    assert [takeover.previous_owner for takeover in other.takeovers] == [late]


def test_a_worker_that_stands_still_in_the_middle_of_a_claim_holds_nothing_back_for_longer_than_a_lease(
    tenant: str,
) -> None:
    """Its transaction is open, with locks that everybody else skips; nothing of it is on record, nothing was sent."""
    with Sink() as sink, Consumer() as consumer:
        endpoint(tenant, sink.url)
        (one,) = submitted_in_silence(events(tenant, deliver_at=datetime.now(UTC) + timedelta(seconds=1)))
        with transaction.atomic():
            database.lock("ledger_run", "run_id", one.run_id)
            (pid,) = wait_until(lambda: _waiting_for_a_lock("operation.claim"), SOON_S, "a claim waits for the run")
            for child in consumer.children():
                suspend(child)
        try:
            wait_until(lambda: _idle_in_transaction(pid), SOON_S, "the claim was made, and is not committed")
            assert one.status == "prepared"
            with Consumer():
                wait_until(lambda: one.status == "succeeded", NOTICED_S, "delivered by the other consumer")
        finally:
            for child in consumer.children():
                os.kill(child, signal.SIGCONT)
        before = one.rows()
        (another,) = submitted(events(tenant))
        wait_until(lambda: another.status == "succeeded", SOON_S, "those that stood still work again")

    assert sink.events == {one.webhook_id: 1, another.webhook_id: 1}
    assert one.rows() == before
    assert one.operation.attempts == len(one.attempts) == 1


def _waiting_for_a_lock(*statements: str) -> list[int]:
    """The backends whose workers wait for a row's lock in one of these statements."""
    database.scalar("SELECT count(pg_stat_clear_snapshot())")  # a transaction sees what it saw first
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND substring(query FROM 'relay: (\\S+)') = ANY(%s)",
            [list(statements)],
        )
        return [row[0] for row in cursor.fetchall()]


def _idle_in_transaction(pid: int) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'idle in transaction'"
    return database.scalar(query, pid) == 1
