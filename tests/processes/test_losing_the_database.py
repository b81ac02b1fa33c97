"""Connections to PostgreSQL that are cut under a working consumer, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
from django.conf import settings
from django.db import connection

from ledger.models import Clock, Lease, Operation
from tests.support import database, deliveries
from tests.support.consumer import NOTICED_S, Consumer
from tests.support.deliveries import succeeded
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

BACKLOG, CUTS = 3_000, 6


def cut_all() -> int:
    """End every connection to this database but ours; how many there were."""
    settings.HUEY.storage.close()  # ours too, and made anew when it is needed
    with database.unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'relay%%'"
        )
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def test_a_consumer_whose_connections_are_cut_again_and_again_delivers_everything(tenant: str) -> None:
    with Sink() as sink, Consumer() as consumer:
        deliveries.endpoint(tenant, sink.url, in_flight=32)
        workers = consumer.children()
        watched = deliveries.submitted(deliveries.events(tenant, BACKLOG))
        for cut in range(1, CUTS + 1):
            sink.wait_for(cut * BACKLOG // (CUTS + 2))
            assert cut_all()
        wait_until(lambda: not deliveries.unsettled(tenant), 2 * NOTICED_S, "everything settled")
        assert consumer.children() == workers, "no worker died of it"
        (another,) = deliveries.submitted(deliveries.events(tenant))
        wait_until(lambda: another.status == "succeeded", 5, "prompt again")

    arrived = sink.events
    assert set(arrived) == {one.webhook_id for one in [*watched, another]}
    attempts = dict(Operation.objects.values_list("operation_key", "attempts"))
    assert all(arrived[one.webhook_id] <= attempts[one.operation_key] for one in watched)
    assert not Operation.objects.exclude(status="succeeded").exists()
    assert not Lease.objects.exclude(owner=None).exists()
    print(f"{sum(arrived.values()) - BACKLOG - 1} deliveries were sent more than once")


def test_an_idle_consumer_whose_connections_are_cut_is_back_within_seconds(tenant: str) -> None:
    with Sink() as sink, Consumer() as consumer:
        deliveries.endpoint(tenant, sink.url)
        for _ in range(3):
            assert cut_all()
            (one,) = deliveries.submitted(deliveries.events(tenant))
            wait_until(partial(succeeded, one), 10, "delivered")
            consumer.wait_until_ready()
        assert set(sink.events.values()) == {1}


@contextmanager
def away() -> Iterator[None]:
    """A time in which nobody but us can reach the database."""
    name = connection.ops.quote_name(str(connection.settings_dict["NAME"]))
    with database.administrator() as elsewhere:
        elsewhere.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            cut_all()
            yield
        finally:
            elsewhere.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_an_answer_that_could_not_be_written_before_the_lease_ran_out_is_evidence_and_settles_it(tenant: str) -> None:
    with Sink(held=True) as sink, Consumer():
        deliveries.endpoint(tenant, sink.url, idempotent=False)
        (one,) = deliveries.submitted(deliveries.events(tenant))
        sink.wait_for(1)
        owner, epoch = one.owner, one.lease.epoch
        with away():
            assert sink.let_go() == 1
            expired = Lease.objects.filter(run_id=one.run_id, expires_at__lte=Clock() - timedelta(seconds=2))
            wait_until(expired.exists, NOTICED_S, "the lease ran out, and the worker has noticed")
        wait_until(lambda: one.fenced_writes, NOTICED_S, "the late write was refused")
        wait_until(lambda: [attempt.late for attempt in one.attempts] == [True], 5, "the attempt is marked late")
        wait_until(partial(succeeded, one), NOTICED_S, "the reconciler found the claim, and the answer")

    assert sink.events == {one.webhook_id: 1}
    settle = next(write for write in one.fenced_writes if write.statement == "operation.settle")
    assert (settle.reason, settle.owner, settle.epoch) == ("lease_lost", owner, epoch)
    assert settle.evidence is not None
    assert settle.evidence["http_status"] == 200
    (attempt,) = one.attempts
    assert (attempt.owner, attempt.epoch, attempt.http_status) == (owner, epoch, 200)
    assert [takeover.previous_owner for takeover in one.takeovers] == [owner]
    assert one.operation.result is not None
    assert one.operation.result["converged_by"] == "late evidence"
    assert one.run.status == "succeeded"
