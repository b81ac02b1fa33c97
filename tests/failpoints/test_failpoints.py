"""A worker dies or stands still at each point of a delivery's way: what the protocol says comes of it, comes of it.

Every receiver keeps its own record: that is what is compared with the ledger, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from pytest_django.plugin import DjangoDbBlocker

from deliveries import reconcile
from deliveries.failpoints import Action, Point
from deliveries.models import Verdict
from tests.failpoints.trials import KINDS, SENT, UNCLAIMED, UNSENT, Trial, Tried, tried

pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.timeout(300)]

CASES = list(product(Point, Action))


@pytest.fixture(scope="module")
def everything(committed_database: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Tried]:
    with django_db_blocker.unblock(), tried(CASES) as done:
        yield done


@pytest.fixture(params=CASES, ids=[f"{point}:{action}" for point, action in CASES])
def trial(request: pytest.FixtureRequest, everything: Tried) -> Trial:
    return everything.trials[request.param]


def test_the_whole_history_holds_nothing_against_the_protocol(everything: Tried) -> None:
    assert everything.violations == []


def test_a_receiver_that_drops_duplicates_acts_exactly_once(trial: Trial) -> None:
    for kind in ("idempotent", "both"):
        one = trial.one[kind]
        assert one.status == "succeeded"
        assert trial.sink.effects[f"/{kind}"] == [one.operation_id]
        assert {request.event for request in trial.arrivals(kind)} == {one.webhook_id}
        assert one.run.status == "succeeded"


def test_a_receiver_that_promises_nothing_never_gets_it_twice_and_is_never_called_a_failure(trial: Trial) -> None:
    one, arrivals = trial.one["neither"], trial.arrivals("neither")
    if trial.point in UNCLAIMED:
        assert (one.status, len(arrivals)) == ("succeeded", 1)
    elif trial.point in SENT:
        assert len(arrivals) == 1
        # Who woke brought its answer along; of a dead one's nobody knows.
        told = trial.action is Action.STOP or one.attempts[0].ended_at is not None
        assert one.status == ("succeeded" if told else "unknown")
    else:
        assert len(arrivals) <= (trial.action is Action.STOP), "what a dead worker had not sent never arrives"
        assert one.status == "unknown" or (arrivals and one.status == "succeeded")
    assert one.run.status == ("succeeded" if one.status == "succeeded" else "running")


def test_a_receiver_that_can_be_asked_settles_it_by_its_answer(trial: Trial) -> None:
    one, arrivals = trial.one["queryable"], trial.arrivals("queryable")
    assert one.status == "succeeded"
    assert trial.sink.effects["/queryable"] == [one.operation_id]
    lost = any(attempt.classification == reconcile.LOST for attempt in one.attempts)
    if trial.point in UNSENT:
        assert one.operation_id in trial.sink.questions
        # It was answered "never arrived", and sent again; a worker that wakes after that may still send its own.
        assert len(arrivals) == 1 or (trial.action is Action.STOP and len(arrivals) == 2)
    else:
        assert len(arrivals) == 1
        assert lost is False or one.operation_id in trial.sink.questions


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_arrives_without_a_claim_on_record_and_nothing_that_arrived_is_called_not_sent(
    trial: Trial, kind: str
) -> None:
    one = trial.one[kind]
    on_record = {(attempt.number, attempt.epoch): attempt.verdict for attempt in one.attempts}
    for request in trial.arrivals(kind):
        presented = int(request.headers["relay-attempt"]), int(request.headers["relay-epoch"])
        assert presented in on_record
        assert on_record[presented] != Verdict.NOT_SENT
        assert presented[0] <= one.operation.attempts
        assert presented[1] <= one.lease.epoch
    assert one.lease.owner is None
    assert [number for number, _ in on_record] == list(range(1, one.operation.attempts + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_failed_with_a_claim_was_taken_over_on_record_and_what_it_wrote_afterwards_was_refused(
    trial: Trial, kind: str
) -> None:
    one = trial.one[kind]
    first = one.attempts[0]
    if trial.point in UNCLAIMED:
        assert not one.takeovers
        assert not one.fenced_writes
        assert not trial.lost(first.owner)
        return
    assert trial.lost(first.owner)
    settled_in_time = first.ended_at is not None and not first.late
    assert settled_in_time <= (trial.point is Point.AFTER_SETTLE)
    assert [trial.lost(takeover.previous_owner) for takeover in one.takeovers] == [True] * (not settled_in_time)
    assert all(trial.lost(write.owner) and write.reason == "lease_lost" for write in one.fenced_writes)
    assert bool(one.fenced_writes) == (trial.action is Action.STOP and not settled_in_time)
