"""Two connections: whoever comes second waits, and in either order nothing comes back and nothing is sent."""

from __future__ import annotations

import pytest
from django.db import transaction

from deliveries import expunging
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.models import Attempt, Event
from ledger.managers import task
from ledger.managers.operation import Settled
from ledger.models import Operation, Run, Task
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import in_transaction
from ledger.states import RunReason
from tests.api import rows
from tests.api.rows import Caller, let_lease_expire
from tests.expunge.lived import OWNER, TTL_MS, answered, claim, key_of, places, say, settle, submit
from tests.races.rival import Observer, Rival
from tests.support import ledger_rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(observer: Observer) -> Caller:
    rows.tenant("default")
    by = rows.caller()
    rows.endpoint(by)
    return by


def expunge(*event_ids: str) -> int:
    keys = [key_of(event_id) for event_id in event_ids]
    return len(in_transaction(lambda: expunging.expunge("default", keys)))


def replay() -> Applied[task.Opened] | Rejected:
    (task_id,) = Task.objects.values_list("task_id", flat=True)
    return in_transaction(lambda: task.open_run([task_id], reason=RunReason.REPLAY))[task_id]


def report(delivery: Delivery) -> Applied[Settled] | Rejected:
    return settling.settle([answered(delivery)], owner=OWNER)[delivery.key]


LATE = pytest.mark.parametrize("late", [False, True], ids=["in time", "fenced out"])


@LATE
def test_a_settle_that_commits_first_is_waited_for_and_what_it_wrote_is_removed(
    observer: Observer, caller: Caller, late: bool
) -> None:
    event_id = submit(caller)
    delivery = claim()
    if late:
        let_lease_expire(delivery.claim)
    with transaction.atomic():
        settle(delivery)
        rival = Rival(lambda: expunge(event_id))
        observer.see_waiting(rival, "lease.await_holders")
    assert rival.result() == 1
    assert Attempt.objects.get().http_status == 200
    assert places() == set()


@LATE
def test_a_settle_that_commits_second_leaves_the_answer_out(observer: Observer, caller: Caller, late: bool) -> None:
    event_id = submit(caller)
    delivery = claim()
    if late:
        let_lease_expire(delivery.claim)
    with transaction.atomic():
        expunge(event_id)
        rival = Rival(lambda: report(delivery))
        observer.see_waiting(rival, "operation.settle")
    assert isinstance(rival.result(), Rejected if late else Applied)
    assert Attempt.objects.get().http_status == 200
    assert places() == set()


@pytest.mark.parametrize("first", ["word", "expunge"])
def test_a_receivers_word_leaves_nothing_in_either_order(observer: Observer, caller: Caller, first: str) -> None:
    event_id = submit(caller)
    delivery = claim()
    settle(delivery, None)
    acts = {"word": lambda: int(say(delivery)), "expunge": lambda: expunge(event_id)}
    with transaction.atomic():
        acts.pop(first)()
        rival = Rival(next(iter(acts.values())))
        observer.see_waiting(rival, "lease.await_holders")
    assert rival.result() == 1
    assert places() == set()


def test_a_replay_that_commits_first_is_cancelled(observer: Observer, caller: Caller) -> None:
    event_id = submit(caller)
    settle(claim(), 410)
    with transaction.atomic():
        assert isinstance(replay(), Applied)
        rival = Rival(lambda: expunge(event_id))
        observer.see_waiting(rival, "task.close")
    assert rival.result() == 1
    assert sorted(Run.objects.values_list("status", flat=True)) == ["cancelled", "failed"]
    assert claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)[0] == []


def test_a_replay_that_commits_second_opens_no_run(observer: Observer, caller: Caller) -> None:
    event_id = submit(caller)
    settle(claim(), 410)
    with transaction.atomic():
        expunge(event_id)
        rival = Rival(replay)
        observer.see_waiting(rival, "task.await_openers")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.CLOSED
    assert Run.objects.count() == 1


@pytest.mark.parametrize("path", ["/v1/events/{}/replay", "/v1/deliveries/{}/replay"])
def test_who_asked_for_the_second_is_told_that_it_was_expunged(observer: Observer, caller: Caller, path: str) -> None:
    event_id = submit(caller)
    settle(claim(), 410)
    (delivery,) = rows.deliveries_of(caller, event_id)
    name = event_id if "events" in path else delivery["id"]
    with transaction.atomic():
        expunge(event_id)
        rival = Rival(lambda: caller.post(path.format(name), {} if "events" in path else None))
        observer.see_waiting(rival, "task.await_openers")
    answer = rival.result()
    assert (answer.status_code, answer.json()["code"]) == (409, "expunged"), answer.content
    assert Run.objects.count() == 1


def test_a_claim_that_commits_first_is_waited_for_and_is_sent(observer: Observer, caller: Caller) -> None:
    """What is in a dispatcher's hands is as on the wire: nobody calls it back, and its truth is recorded."""
    event_id = submit(caller)
    with transaction.atomic():
        delivery = claim()
        rival = Rival(lambda: expunge(event_id))
        observer.see_waiting(rival, "lease.await_holders")
    assert rival.result() == 1
    assert Operation.objects.get().status == "dispatching"
    assert isinstance(settle(delivery), Applied)
    assert places() == set()


def test_a_dispatcher_that_comes_second_passes_it_by_and_finds_nothing_afterwards(
    observer: Observer, caller: Caller
) -> None:
    event_id = submit(caller)
    with transaction.atomic():
        expunge(event_id)
        rival = Rival(lambda: claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)[0])
        assert not observer.see_waiting_or_done(rival)
        assert rival.result() == []
    assert claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)[0] == []
    assert Operation.objects.get().status == "cancelled"


def test_two_who_expunge_the_same_in_another_order_wait_and_one_of_them_does_it(
    observer: Observer, caller: Caller
) -> None:
    event_ids = [submit(caller) for _ in range(3)]
    with transaction.atomic():
        assert expunge(*event_ids) == 3
        rival = Rival(lambda: expunge(*event_ids[::-1]))
        observer.see_waiting(rival, "expunge.hold")
    assert rival.result() == 0
    assert Event.objects.exclude(expunged_at=None).count() == 3


def test_the_late_answer_to_an_old_run_is_waited_for_as_well(observer: Observer, caller: Caller) -> None:
    """Its lease is not the active run's: that one alone would not keep the answer out."""
    event_id = submit(caller)
    old = claim()
    let_lease_expire(old.claim)
    assert settling.settle([answered(old, 410)], owner=OWNER)
    was = Operation.objects.get()
    ledger_rows.change(
        "ledger_operation", {"operation_key": was.operation_key}, status="failed_final", dispatch_owner=None,
        dispatch_epoch=None, dispatch_until=None, due_at=None,
    )  # fmt: skip
    ledger_rows.change("ledger_run", {"run_id": was.run_id}, status="failed")
    assert isinstance(replay(), Applied)
    with transaction.atomic():
        report(old)
        rival = Rival(lambda: expunge(event_id))
        observer.see_waiting(rival, "lease.await_holders")
    assert rival.result() == 1
    assert places() == set()
