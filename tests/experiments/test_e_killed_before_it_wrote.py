"""E: the receiver took it, and the sender is killed (SIGKILL) before it wrote so.

A receiver that drops duplicates acts once, however often it is sent to it. Of one that promises nothing nobody knows:
unknown, and never sent again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from deliveries import reconcile
from deliveries.failpoints import Action, Point
from deliveries.models import Verdict
from tests.support import deliveries, mutants
from tests.support.armed import ArmedConsumer, RecordingSink
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.sink import Arrived
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")


@dataclass
class Seen:
    """`before`: the rows when it was found, `after`: after several more sweeps. `lost`: the pid that was killed."""

    one: Watched
    lost: int
    arrivals: list[Arrived]
    effects: list[str]
    before: dict[str, Any]
    after: dict[str, Any]


def experiment(*, idempotent: bool, mutant: str | None = None) -> Seen:
    """A worker is killed between the receiver's answer and the write of it; another consumer takes over."""
    tenant = deliveries.tenant()
    with RecordingSink(held=True) as sink:
        endpoint(tenant, f"{sink.url}e", idempotent=idempotent, types=["invoice.*"])
        with ArmedConsumer(Point.AFTER_SEND, Action.KILL) as armed:
            (one,) = submitted(events(tenant))
            sink.wait_for(1)
            assert sink.let_go() == 1
            lost = armed.wait_until_failed()
            armed.kill_all()
        assert one.status == "dispatching", "nothing of it is on record"
        with Consumer(2, **mutants.environment(mutant)):
            sweeps = Sweeps(tenant)
            wait_until(lambda: one.status != "dispatching", NOTICED_S, "found by the reconciler")
            if idempotent:
                wait_until(lambda: one.status == "succeeded", NOTICED_S, "sent again")
            before = one.rows()
            sweeps.wait_for(4)
            if mutant is not None:
                wait_until(lambda: len(sink.requests) > 1, NOTICED_S, "sent again")
            return Seen(one, lost, list(sink.requests), sink.effects["/e"], before, one.rows())


def test_an_idempotent_receiver_acts_once_and_the_delivery_succeeds() -> None:
    seen = experiment(idempotent=True)
    one = seen.one
    assert seen.effects == [one.operation_id]
    first, second = (request.headers for request in seen.arrivals)
    assert first["webhook-id"] == second["webhook-id"] == one.webhook_id
    assert first["idempotency-key"] == second["idempotency-key"] == one.operation_id
    assert int(second["relay-epoch"]) > int(first["relay-epoch"])
    assert (first["relay-attempt"], second["relay-attempt"]) == ("1", "2")

    (takeover,) = one.takeovers
    assert pid_of(takeover.previous_owner) == seen.lost
    assert pid_of(takeover.owner) != seen.lost
    assert takeover.epoch > int(first["relay-epoch"])
    assert takeover.taken_at >= takeover.previous_expired_at

    missing, accepted = one.attempts
    assert (missing.classification, missing.verdict) == (reconcile.LOST, Verdict.UNKNOWN)
    assert pid_of(missing.owner) == seen.lost
    assert (missing.number, missing.ended_at, missing.http_status) == (1, None, None)
    assert (accepted.classification, accepted.number, accepted.late) == ("accepted", 2, False)
    assert one.operation.ambiguous
    assert one.run.status == "succeeded"
    assert seen.after == seen.before


def test_for_a_receiver_that_promises_nothing_it_stays_unknown_and_is_never_sent_again_by_itself() -> None:
    seen = experiment(idempotent=False)
    one = seen.one
    assert len(seen.arrivals) == 1
    assert seen.after == seen.before
    assert one.status == "unknown"
    assert one.run.status == "running"
    assert one.pointer.due_at is None
    assert one.pointer.unknown_since is not None
    assert [pid_of(takeover.previous_owner) for takeover in one.takeovers] == [seen.lost]
    (attempt,) = one.attempts
    assert (attempt.classification, attempt.ended_at, pid_of(attempt.owner)) == (reconcile.LOST, None, seen.lost)


def test_if_a_claim_that_ran_out_went_back_to_prepared_it_would_be_sent_twice() -> None:
    seen = experiment(idempotent=False, mutant="expire: back to prepared")
    assert len(seen.arrivals) == 2


def test_if_an_attempt_had_an_id_of_its_own_an_idempotent_receiver_would_act_twice() -> None:
    seen = experiment(idempotent=True, mutant="claim: another id")
    assert len(seen.effects) == 2
