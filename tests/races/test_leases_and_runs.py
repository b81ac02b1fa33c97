"""Two connections and one run: protected writes, takeovers, cancels and replays that meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from ledger.managers import lease, operation, run, task
from ledger.managers.operation import Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER, Statement
from ledger.states import RunReason
from tests.races.rival import DEADLINE_S, Observer, Rival
from tests.support import database
from tests.support import ledger_rows as rows
from tests.support.functions import swapped
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted
from tests.support.waiting import wait_until


def lock_lease(planted: Planted) -> None:
    database.lock("ledger_lease", "run_id", planted.run_id)


def held_run(lease_ms: int = TTL_MS) -> Planted:
    return rows.plant("prepared", run_status="running", owner=OWNER, lease_ms=lease_ms)


def checkpoint(planted: Planted, revision: int, value: Any) -> Applied[run.Written] | Rejected:
    held = Held(planted.run_id, rows.lease(planted)["epoch"], revision)
    return run.save_checkpoint([held], [value], owner=OWNER)[planted.run_id]


def test_of_two_writes_with_one_revision_the_second_is_applied_when_the_first_rolls_back(observer: Observer) -> None:
    planted = held_run()
    with transaction.atomic():
        assert isinstance(checkpoint(planted, 2, {"by": "first"}), Applied)
        rival = Rival(lambda: checkpoint(planted, 2, {"by": "second"}))
        observer.see_waiting(rival, "run.save_checkpoint")
        transaction.set_rollback(True)
    assert isinstance(rival.result(), Applied)
    assert (rows.run(planted)["revision"], rows.run(planted)["checkpoint"]) == (3, '{"by": "second"}')


def test_a_holder_that_commits_after_its_lease_was_taken_over_is_fenced_out(observer: Observer) -> None:
    planted = held_run(lease_ms=-1)
    with transaction.atomic():
        acquired = lease.acquire([planted.run_id], owner=RIVAL, ttl_ms=TTL_MS)[planted.run_id]
        assert isinstance(acquired, Applied)
        rival = Rival(lambda: run.save_checkpoint([Held(planted.run_id, 3, 2)], [1], owner=OWNER)[planted.run_id])
        observer.see_waiting(rival, "run.save_checkpoint")
    late = rival.result()
    assert isinstance(late, Rejected)
    assert (late.reason, late.seen_owner, late.seen_epoch) == (Reason.LEASE_LOST, RIVAL, 4)


def test_of_two_that_acquire_one_free_lease_one_holds_it(observer: Observer) -> None:
    planted = rows.plant()
    with transaction.atomic():
        first = lease.acquire([planted.run_id], owner=OWNER, ttl_ms=TTL_MS)[planted.run_id]
        rival = Rival(lambda: lease.acquire([planted.run_id], owner=RIVAL, ttl_ms=TTL_MS)[planted.run_id])
        observer.see_waiting(rival, "lease.acquire")
    second = rival.result()
    assert isinstance(first, Applied)
    assert isinstance(second, Rejected)
    assert (second.reason, second.seen_owner, second.seen_epoch) == (Reason.LEASE_HELD, OWNER, 1)


WRITES: dict[str, Callable[[Planted], Applied[Any] | Rejected]] = {
    "operation.settle": lambda planted: operation.settle(
        [Settlement(rows.claim_of(planted), Proof.ACCEPTED, None, None)], owner=OWNER
    )[planted.operation_key],
    "lease.renew": lambda planted: lease.renew([(planted.run_id, 3)], owner=OWNER, ttl_ms=TTL_MS)[planted.run_id],
    "run.save_checkpoint": lambda planted: run.save_checkpoint([Held(planted.run_id, 3, 2)], [1], owner=OWNER)[
        planted.run_id
    ],
    "operation.plan": lambda planted: operation.plan(
        [Plan(planted.run_id, 3, 2, "notify", 1, "webhook", b"", planted.event_id)], owner=OWNER
    )[planted.run_id, "notify", 1],
}


def write_that_waits_past_the_end(observer: Observer, statement: str) -> tuple[Planted, Applied[Any] | Rejected]:
    """The answer to a write that began while its lease was alive, and waited for the lease's row until it was not.

    The row is only locked and not changed: a condition that was read before the wait still holds. Where this machine is
    too slow to begin in time, the lease is made longer.
    """
    for lease_ms in (500, 2000, 6000):
        planted = rows.plant("dispatching", lease_ms=lease_ms)
        ended = f"SELECT expires_at < clock_timestamp() FROM ledger_lease WHERE run_id = '{planted.run_id}'"  # noqa: S608 - our own key
        with transaction.atomic():
            lock_lease(planted)
            rival = Rival(lambda planted=planted: WRITES[statement](planted))  # type: ignore[misc]
            observer.see_waiting(rival, "lease.await_holders" if statement == "operation.plan" else statement)
            in_time = not observer.scalar(ended)
            wait_until(lambda ended=ended: observer.scalar(ended), DEADLINE_S, "the lease ends")  # type: ignore[misc]
        answer = rival.result()
        if in_time:
            return planted, answer
    raise AssertionError("no write began in time")


@pytest.mark.parametrize("statement", WRITES)
def test_the_clock_trap_a_write_that_waited_past_the_end_of_its_lease_is_refused(
    observer: Observer, statement: str
) -> None:
    planted, answer = write_that_waits_past_the_end(observer, statement)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.LEASE_LOST
    assert rows.operation(planted)["status"] == "dispatching"


def test_the_clock_trap_would_catch_a_condition_that_reads_the_clock_before_the_wait(
    observer: Observer,
) -> None:
    """The same wait, judged by the time at which the statement began: the dead lease is revived."""
    early = LEDGER["lease.renew"].sql.replace("expires_at > clock_timestamp()", "expires_at > statement_timestamp()")
    assert early != LEDGER["lease.renew"].sql
    with swapped(Statement("lease.renew", early)):
        assert isinstance(write_that_waits_past_the_end(observer, "lease.renew")[1], Applied)


def test_a_cancel_that_waited_for_a_plan_withdraws_what_was_planned(observer: Observer) -> None:
    planted = held_run()
    with transaction.atomic():
        assert isinstance(checkpoint(planted, 2, {}), Applied)
        plan = Plan(planted.run_id, 3, 3, "notify", 1, "webhook", b"", planted.event_id)
        (planned,) = operation.plan([plan], owner=OWNER).values()
        assert isinstance(planned, Applied)
        rival = Rival(lambda: run.cancel([planted.run_id])[planted.run_id])
        observer.see_waiting(rival, "lease.await_holders")
    assert isinstance(rival.result(), Applied)
    assert [one["status"] for one in rows.rows("ledger_operation")] == ["cancelled", "cancelled"]
    assert rows.rows("ledger_dispatch") == []


def test_a_plan_that_waited_for_a_cancel_plans_nothing(observer: Observer) -> None:
    planted = held_run()
    with transaction.atomic():
        assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
        rival = Rival(lambda: WRITES["operation.plan"](planted))
        observer.see_waiting(rival, "lease.await_holders")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_status) == (Reason.WRONG_STATUS, "cancelled")
    assert len(rows.rows("ledger_operation")) == 1


def test_of_two_plans_of_one_intent_both_name_the_same_operation(observer: Observer) -> None:
    planted = held_run()
    with transaction.atomic():
        first = WRITES["operation.plan"](planted)
        rival = Rival(lambda: WRITES["operation.plan"](planted))
        observer.see_waiting(rival, "lease.await_holders")
    assert isinstance(first, Applied)
    assert rival.result() == first
    assert rows.run(planted)["revision"] == 3, "what is known already is no write"
    assert len(rows.rows("ledger_operation", step_id="notify")) == 1


def test_of_two_replays_the_second_is_told_of_the_run_that_the_first_opened(observer: Observer) -> None:
    planted = rows.plant("failed_final")
    with transaction.atomic():
        first = task.open_run([planted.task_id], reason=RunReason.REPLAY)[planted.task_id]
        rival = Rival(lambda: task.open_run([planted.task_id], reason=RunReason.REPLAY)[planted.task_id])
        observer.see_waiting(rival, "task.await_openers")
    assert isinstance(first, Applied)
    assert rival.result() == Rejected(Reason.WRONG_STATUS, seen_status="pending")
    assert len(rows.rows("ledger_run", task_id=planted.task_id)) == 2
