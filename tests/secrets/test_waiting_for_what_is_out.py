"""`rotate` answers when no request is out any more that was made of the endpoint as it was before."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from psycopg.conninfo import make_conninfo

from deliveries import outstanding, querying, rotation
from deliveries.models import Endpoint
from deliveries.rotation import Rotated
from deliveries.signing import key_of
from ledger.managers import lease, operation
from ledger.managers.operation import Claimed, Proof, Settlement
from tests.receiver import Answer, Received, Receiver
from tests.support import database
from tests.support.database import unguarded
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("db")

URL = "http://127.0.0.1:9/"
OWNER = "here:1:0"
A_WHILE_S = 0.4
"""Many times as long as a rotation takes that has nothing to wait for."""


class Rotation:
    """A rotation in a thread of its own."""

    def __init__(self, one: Endpoint, patience_s: float = 30.0) -> None:
        self.one, self.patience_s = one, patience_s
        self.made: Rotated | None = None
        self._before = one.secret_sealed
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.made = rotation.rotate(self.one.endpoint_id, patience_s=self.patience_s)
        finally:
            connections.close_all()

    def is_committed(self) -> bool:
        return Endpoint.objects.get(pk=self.one.pk).secret_sealed != self._before

    def waits(self) -> bool:
        """Whether the new secret is stored, and the answer does not come for a while."""
        wait_until(self.is_committed, 10, "the new secret is stored")
        self._thread.join(A_WHILE_S)
        return self._thread.is_alive()

    def ends(self, seconds: float = 10.0) -> Rotated:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it still waits"
        assert self.made is not None
        return self.made


def claimed(one: Watched, ttl_ms: int = 60_000) -> Claimed:
    claims, refused = operation.claim([one.operation_key], owner=OWNER, ttl_ms=ttl_ms)
    assert not refused
    return claims[0]


def settled(claim: Claimed, proof: Proof) -> None:
    operation.settle([Settlement(claim, proof, retry_ms=0, window_ms=60_000)], owner=OWNER)


def test_with_nothing_in_flight_it_answers_at_once(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    submitted(events(tenant, 3))
    assert Rotation(one, patience_s=0.0).ends().settled


@pytest.mark.parametrize("proof", [Proof.ACCEPTED, Proof.AMBIGUOUS, Proof.NOT_TAKEN, Proof.UNSENT])
def test_it_waits_for_what_was_claimed_before_however_that_ends(tenant: str, proof: Proof) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    settled(claim, proof)
    assert rotating.ends().settled


def test_it_waits_for_all_of_them(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    claims = [claimed(watched) for watched in submitted(events(tenant, 3))]
    rotating = Rotation(one)
    for claim in claims:
        assert rotating.waits()
        settled(claim, Proof.ACCEPTED)
    assert rotating.ends().settled


def test_what_is_claimed_again_meanwhile_is_signed_with_both_and_not_waited_for(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    with transaction.atomic():  # As if nothing came in between: not even a look at it.
        settled(claim, Proof.UNSENT)
        again = claimed(watched)
    assert rotating.ends().settled
    settled(again, Proof.ACCEPTED)


def test_what_goes_to_another_endpoint_is_not_waited_for(tenant: str) -> None:
    endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    one, _ = endpoint(tenant, URL)
    assert Rotation(one, patience_s=0.5).ends().settled
    settled(claim, Proof.ACCEPTED)


def test_the_claim_of_a_lost_worker_counts_until_its_lease_has_run_out(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_lease SET expires_at = clock_timestamp() WHERE run_id = %s", [claim.run_id])
    assert rotating.ends().settled
    assert watched.operation.dispatch_owner == OWNER, "nobody had to find it first"


def test_a_lease_that_is_renewed_is_still_waited_for(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched, ttl_ms=1_500)
    rotating = Rotation(one)
    lease.renew([(claim.run_id, claim.epoch)], owner=OWNER, ttl_ms=60_000)
    with unguarded(), connection.cursor() as cursor:
        # The time for which it was claimed at first is over.
        for table in ("ledger_operation SET dispatch_until", "ledger_dispatch SET until"):
            cursor.execute(f"UPDATE {table} = clock_timestamp() WHERE operation_key = %s", [watched.operation_key])
    assert rotating.waits()
    settled(claim, Proof.ACCEPTED)
    assert rotating.ends().settled


def test_when_it_waited_for_long_enough_it_answers_and_says_so(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    begun = time.monotonic()
    made = Rotation(one, patience_s=0.5).ends()
    assert not made.settled
    assert time.monotonic() - begun >= 0.5
    assert key_of(made.secret) == rotation.secrets_of(Endpoint.objects.get(pk=one.pk), claim.dispatched_at)[0]
    settled(claim, Proof.ACCEPTED)


@contextmanager
def somebody() -> Iterator[psycopg.Connection[Any]]:
    """Another session, in a transaction that has written something."""
    login = {**database.login(), "options": "-c role=none"}
    with psycopg.connect(make_conninfo(**login)) as other:
        other.execute("SELECT pg_current_xact_id()")
        yield other
        other.rollback()


def test_it_waits_for_a_claim_that_is_not_committed_yet_and_then_for_that_claim(tenant: str) -> None:
    """The endpoint was read in the claim's transaction, and nobody else sees the claim before its end."""
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    read, go_on, over = threading.Event(), threading.Event(), threading.Event()
    claims: list[Claimed] = []

    def work() -> None:
        try:
            with transaction.atomic():
                claims.append(claimed(watched))
                assert Endpoint.objects.get(pk=one.pk).secret_sealed == one.secret_sealed
                read.set()
                assert go_on.wait(30)
        finally:
            over.set()
            connections.close_all()

    claiming = threading.Thread(target=work)
    claiming.start()
    assert read.wait(10)
    rotating = Rotation(one)
    assert rotating.waits()
    go_on.set()
    assert over.wait(10)
    assert rotating.waits(), "the claim is committed, and its request may be out"
    settled(claims[0], Proof.ACCEPTED)
    assert rotating.ends().settled
    claiming.join(10)


def test_a_transaction_counts_also_when_it_is_the_newest_of_all(tenant: str) -> None:
    """Its number is above every one that is over: a snapshot alone does not list it."""
    one, _ = endpoint(tenant, URL)
    with somebody():
        begun = time.monotonic()
        assert not outstanding.await_sent_before(one.endpoint_id, patience_s=A_WHILE_S)
        assert time.monotonic() - begun >= A_WHILE_S
    assert outstanding.await_sent_before(one.endpoint_id, patience_s=10)


def test_a_transaction_that_begins_later_does_not_count(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    with somebody():
        settled(claim, Proof.ACCEPTED)
        assert rotating.ends().settled


def test_while_it_waits_it_holds_no_lock_and_no_transaction(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
        Endpoint.objects.filter(pk=one.pk).update(description="changed meanwhile")
        cursor.execute("RESET lock_timeout")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND state = 'idle in transaction'"
        )
        assert cursor.fetchone() == (0,)
    settled(claim, Proof.ACCEPTED)
    assert rotating.ends().settled
    assert Endpoint.objects.get(pk=one.pk).description == "changed meanwhile"


def test_it_waits_for_a_question_that_is_being_asked(tenant: str) -> None:
    answer, asked = threading.Event(), threading.Event()

    def slowly(received: Received) -> Answer:
        asked.set()
        answer.wait(20)
        return Answer(body=json.dumps({"outcome": "processed"}).encode())

    with Receiver(slowly) as receiver:
        one, _ = endpoint(tenant, URL, query_url=receiver.url)
        (watched,) = submitted(events(tenant))
        settled(claimed(watched), Proof.AMBIGUOUS)
        asking = threading.Thread(target=_and_close(lambda: querying.query(watched.operation_key)))
        asking.start()
        assert asked.wait(10)
        rotating = Rotation(one)
        assert rotating.waits()
        other, _ = endpoint(tenant, URL)
        assert Rotation(other, patience_s=0.5).ends().settled, "the question is not to that one"
        answer.set()
        assert rotating.ends().settled
        asking.join(10)
    assert watched.status == "succeeded"


def test_a_database_that_goes_away_meanwhile_does_not_cost_the_new_secret(tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    (watched,) = submitted(events(tenant))
    claim = claimed(watched)
    rotating = Rotation(one)
    assert rotating.waits()
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%%outstanding.%%'"
        )
        assert cursor.fetchone() == (1,)
    made = rotating.ends()
    assert not made.settled
    assert key_of(made.secret) == rotation.secrets_of(Endpoint.objects.get(pk=one.pk), claim.dispatched_at)[0]
    settled(claim, Proof.ACCEPTED)


def _and_close(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    return run
