"""One step of a job is one transaction: it moves the row by one, or nothing of it happened."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, IntegrityError, OperationalError, connection, connections, transaction

from deliveries import ids, jobs, recovering
from deliveries.models import Job, JobKind
from deliveries.recovering import Filter
from deliveries.steps import JobRow, Step
from ledger.managers.operation import Proof
from ledger.models import Run
from tests.jobs.over import ended, recovery, runs_of, settle
from tests.support import ledger_rows
from tests.support.database import lock
from tests.support.deliveries import endpoint, tenant

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
NOWHERE = "http://127.0.0.1:9/"
COLUMNS = ("status", "revision", "walked", "matched", "changed", "skipped")


@pytest.fixture
def mine(db: None) -> str:
    name = tenant()
    endpoint(name, NOWHERE)
    return name


def seen(job_id: uuid.UUID) -> tuple[Any, ...]:
    found: tuple[Any, ...] = Job.objects.values_list(*COLUMNS).get(job_id=job_id)
    return found


def finish() -> int:
    steps = 0
    while jobs.due_for_ms() is not None:
        steps += jobs._step() is not None
    return steps


def test_each_step_moves_the_revision_by_one_and_is_bounded(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 2)
    ended(mine, 5)
    made = recovery(mine)
    assert seen(made) == ("pending", 0, 0, 0, 0, 0)
    jobs._step()
    assert seen(made) == ("running", 1, 2, 2, 2, 0)
    jobs._step()
    assert seen(made) == ("running", 2, 4, 4, 4, 0)
    jobs._step()
    assert seen(made) == ("done", 3, 5, 5, 5, 0)
    assert jobs._step() is None
    assert set(runs_of(mine).values()) == {2}


@pytest.mark.parametrize("stretch", [1, 2, 5, 6])
def test_stretches_and_batches_of_any_length_leave_none_out(
    mine: str, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(recovering, "STRETCH", stretch)
    for batch in (1, 3, 5, 6):
        monkeypatch.setattr(jobs, "BATCH", batch)
        mine = tenant()
        endpoint(mine, NOWHERE)
        ended(mine, 2)
        ended(mine, 3, Proof.ACCEPTED)
        ended(mine, 1)
        counted, made = recovery(mine, dry_run=True), recovery(mine)
        finish()
        assert seen(counted)[2:] == (6, 3, 0, 0)
        assert seen(made)[2:] == (6, 3, 3, 0)
        assert sorted(runs_of(mine).values()) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("a bug"),
        IntegrityError("a bug"),
        IntegrityError("a bug\nDETAIL:  Failing row contains (a secret)."),
        DataError("a bug"),
    ],
)
def test_a_step_that_fails_has_changed_nothing_and_says_why(
    mine: str, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    ended(mine, 3)
    real = recovering.step

    def broken(row: JobRow, most: int) -> Step:
        real(row, most)
        raise fault

    monkeypatch.setitem(jobs.KINDS, JobKind.RECOVER, broken)
    made = recovery(mine)
    jobs._step()
    assert seen(made) == ("failed", 1, 0, 0, 0, 0)
    assert Job.objects.get(job_id=made).error == f"{type(fault).__name__}: a bug"
    assert set(runs_of(mine).values()) == {1}
    assert jobs.due_for_ms() is None


def test_a_database_that_goes_away_leaves_the_step_to_be_made_again(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(mine, 3)
    real = recovering.step
    broken = True

    def unlucky(row: JobRow, most: int) -> Step:
        step = real(row, most)
        if broken:
            raise OperationalError("unlucky")
        return step

    monkeypatch.setitem(jobs.KINDS, JobKind.RECOVER, unlucky)
    made = recovery(mine)
    with pytest.raises(OperationalError):
        jobs._step()
    assert seen(made) == ("pending", 0, 0, 0, 0, 0)
    assert set(runs_of(mine).values()) == {1}
    broken = False
    assert jobs._step() is not None
    assert seen(made) == ("done", 1, 3, 3, 3, 0)


def test_a_cancelled_job_makes_no_further_step(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 2)
    ended(mine, 5)
    made = recovery(mine)
    jobs._step()
    assert not jobs.cancel("default", made), "somebody else's"
    assert jobs.cancel(mine, made)
    assert not jobs.cancel(mine, made), "it is over"
    assert jobs._step() is None
    assert seen(made) == ("cancelled", 2, 2, 2, 2, 0)
    assert sorted(runs_of(mine).values()) == [1, 1, 1, 2, 2]


def test_jobs_take_turns(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 1)
    ended(mine, 4)
    first, second = recovery(mine), recovery(mine, dry_run=True)
    for _ in range(4):
        jobs._step()
    assert seen(first)[:2] == ("running", 2)
    assert seen(second)[:2] == ("running", 2)


def test_a_rate_is_kept_over_steps(mine: str) -> None:
    ended(mine, 5)
    made = recovery(mine, per_second=2)
    jobs._step()
    assert seen(made)[4] == 2
    assert jobs._step() is None, "the next second has not come"
    due = jobs.due_for_ms()
    assert due is not None
    assert -1_000 <= due < 0
    ledger_rows.change("deliveries_job", {"job_id": made}, step_at=ledger_rows.from_now(-1))
    jobs._step()
    assert seen(made)[4] == 4


def test_a_second_job_recovers_nothing_that_goes_on(mine: str) -> None:
    ended(mine, 3)
    first, second = recovery(mine), recovery(mine)
    finish()
    assert seen(first)[2:] == (3, 3, 3, 0)
    assert seen(second)[2:] == (3, 0, 0, 0)
    assert set(runs_of(mine).values()) == {2}


def test_what_was_accepted_after_the_job_is_not_its_business(mine: str) -> None:
    ended(mine, 2)
    made = recovery(mine)
    ended(mine, 2)
    finish()
    assert seen(made)[3:] == (2, 2, 0)
    assert sorted(runs_of(mine).values()) == [1, 1, 2, 2]


def test_what_fails_again_while_the_job_runs_is_not_taken_twice(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 1)
    keys = ended(mine, 2)
    made = recovery(mine)
    jobs._step()
    (again,) = Run.objects.filter(task__tenant_id=mine, reason="recover")
    operation = again.operations.get()
    assert operation.operation_key not in keys
    settle([operation.operation_key], Proof.FINAL)
    finish()
    assert seen(made)[3:] == (2, 2, 0)
    assert set(runs_of(mine).values()) == {2}


def test_two_workers_never_make_one_step_twice(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 5)
    ended(mine, 100)
    made = recovery(mine)
    steps: list[Step] = []

    def work() -> None:
        try:
            while jobs.work(lambda: False, steps.append):
                pass
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()
    assert seen(made)[2:] == (100, 100, 100, 0)
    assert sum(step.changed for step in steps) == 100
    assert seen(made)[1] == len(steps)
    assert set(runs_of(mine).values()) == {2}


def test_a_job_that_another_worker_holds_is_passed_over(mine: str) -> None:
    ended(mine, 1)
    held, free = recovery(mine, dry_run=True), recovery(mine, dry_run=True)
    holds, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            lock("deliveries_job", "job_id", held)
            holds.set()
            leave.wait(30)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert holds.wait(30)
        assert jobs._step() is not None
        assert jobs._step() is None
        assert (seen(held)[0], seen(free)[0]) == ("pending", "done")
    finally:
        leave.set()
        other.join(30)


def test_progress_follows_the_time_of_what_was_looked_at() -> None:
    since = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    kept = Filter(since, since + 4 * HOUR, (), ("failed",), None).as_json()
    assert recovering.progress(kept, None) == 0
    assert recovering.progress(kept, ids.first_at(since + HOUR)) == 0.25
    assert recovering.progress(kept, ids.first_at(since - HOUR)) == 0
    assert recovering.progress(kept, ids.first_at(since + 9 * HOUR)) == 1
