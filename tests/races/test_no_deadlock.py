"""Every pair of writing statements, over the same rows in opposite orders: somebody may wait, nobody waits for ever."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from django.db import connection, transaction

from ledger.managers import dispatch, lease, operation, run, task, unknown
from ledger.managers.operation import Claimed, Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.unknown import Retry
from ledger.statements import LEDGER, Statement
from ledger.states import Decision, RunReason
from tests.races.rival import Observer, Rival
from tests.statements.fences import FENCES
from tests.statements.test_fence_matrix import WRITES
from tests.support import database
from tests.support import ledger_rows as rows
from tests.support.functions import swapped
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted


@dataclass(frozen=True, slots=True)
class Row:
    """A planted row with what its owner knew of it when it was planted."""

    planted: Planted
    claim: Claimed | None
    epoch: int
    revision: int

    @property
    def key(self) -> int:
        return self.planted.operation_key

    @property
    def run_id(self) -> uuid.UUID:
        return self.planted.run_id


@transaction.atomic
def plant_crowd() -> list[Row]:
    """One operation in each state from which something is legal."""
    made = [
        rows.plant("prepared"),
        rows.plant("prepared", run_status="running", owner=OWNER),
        rows.plant("dispatching"),
        rows.plant("dispatching", until_ms=-1000),
        rows.plant("dispatching", lease_ms=-1000, until_ms=-1000),
        rows.plant("unknown"),
        rows.plant("unknown", due_ms=-1000, retry_until_ms=rows.HOUR_MS),
        rows.plant("succeeded", run_status="running"),
        rows.plant("failed_final"),
    ]
    for one in made:
        rows.stand_in_line(one)
    return [known(one) for one in made]


def known(planted: Planted) -> Row:
    """With what is on record at this moment."""
    seen = rows.operation(planted)
    claim = rows.claim_of(planted) if seen["dispatch_owner"] else None
    return Row(planted, claim, rows.lease(planted)["epoch"], seen["revision"])


def _settle(crowd: Sequence[Row]) -> None:
    claims = [row.claim for row in crowd if row.claim]
    operation.settle([Settlement(claim, Proof.NOT_TAKEN, 0, None) for claim in claims], owner=OWNER)


def _one_by_one(work: Callable[[Row], object]) -> Callable[[Sequence[Row]], None]:
    """A statement of which a transaction of the application runs one."""

    def each(crowd: Sequence[Row]) -> None:
        if connection.in_atomic_block:
            work(crowd[0])
            return
        for row in crowd:
            work(row)

    return each


def _resolve(row: Row) -> object:
    return unknown.resolve(
        operation_key=row.key, actor="user:sam", decision=Decision.RETRY, reason="Asked.", revision=row.revision
    )


def _converge(row: Row) -> object:
    return unknown.converge(
        operation_key=row.key, revision=row.revision, proof=Proof.NOT_TAKEN, retry_ms=0, actor="query", evidence={}
    )


def _held(crowd: Sequence[Row]) -> list[Held]:
    return [Held(row.run_id, row.epoch, 2) for row in crowd]


def _plan(crowd: Sequence[Row]) -> None:
    plans = [Plan(row.run_id, row.epoch, 2, "notify", 1, "webhook", b"", row.planted.event_id) for row in crowd]
    operation.plan(plans, owner=OWNER)


START = uuid.UUID(int=0)
ACTIONS: dict[str, Callable[[Sequence[Row]], object]] = {
    "lease.acquire": lambda crowd: lease.acquire([row.run_id for row in crowd], owner=RIVAL, ttl_ms=TTL_MS),
    "lease.renew": lambda crowd: lease.renew([(row.run_id, row.epoch) for row in crowd], owner=OWNER, ttl_ms=TTL_MS),
    "lease.release": lambda crowd: lease.release([(row.run_id, row.epoch) for row in crowd], owner=OWNER),
    "run.start": lambda crowd: run.start(_held(crowd), owner=OWNER),
    "run.save_checkpoint": lambda crowd: run.save_checkpoint(_held(crowd), [{} for _ in crowd], owner=OWNER),
    "run.succeed": lambda crowd: run.succeed(_held(crowd), owner=OWNER),
    "run.fail": lambda crowd: run.fail(_held(crowd), owner=OWNER),
    "run.cancel": lambda crowd: run.cancel([row.run_id for row in crowd]),
    "run.finish_left_behind": lambda crowd: run.finish_left_behind(START, batch=1000, owner="reconciler"),
    "task.open_run": lambda crowd: task.open_run([row.planted.task_id for row in crowd], reason=RunReason.REPLAY),
    "task.close": lambda crowd: task.close([row.planted.task_id for row in crowd]),
    "task.leave_line": lambda crowd: task.leave_line(
        {row.planted.task_id: "Asked." for row in crowd}, actor="user:sam"
    ),
    "operation.claim": lambda crowd: operation.claim([row.key for row in crowd], owner=RIVAL, ttl_ms=TTL_MS),
    "operation.settle": _settle,
    "unknown.expire_claims": lambda crowd: unknown.expire_claims(batch=100, owner="reconciler"),
    "unknown.schedule_retry": lambda crowd: unknown.schedule_retry(
        [Retry(row.key, row.revision, 0, rows.HOUR_MS) for row in crowd], losses_below=3
    ),
    "unknown.resolve": _one_by_one(_resolve),
    "unknown.converge": _one_by_one(_converge),
    "operation.plan": _plan,
    "dispatch.repair": lambda crowd: dispatch.repair(0, batch=1000),
    "dispatch.sweep_left_over": lambda crowd: dispatch.sweep_left_over(0, batch=1000),
}


OF_TASKS = {"task.close", "task.leave_line"}
"""They write tasks alone."""


def test_every_statement_that_writes_to_what_exists_is_here() -> None:
    writers = {
        name
        for name, statement in LEDGER.items()
        if WRITES.search(statement.sql) or name.startswith("dispatch.") or name in OF_TASKS
    }
    assert set(ACTIONS) == writers - {"task.open"}


@pytest.mark.parametrize("first", ACTIONS)
def test_whoever_comes_second_waits_for_the_commit_and_then_comes_through(observer: Observer, first: str) -> None:
    for second, act in ACTIONS.items():
        crowd = plant_crowd()
        with transaction.atomic():
            ACTIONS[first](crowd)
            rival = Rival(lambda act=act, crowd=crowd: act(crowd[::-1]))  # type: ignore[misc]
            observer.see_waiting_or_done(rival)
        try:
            rival.result()
        except Exception as error:
            raise AssertionError(f"{second} after {first}") from error


LEVELS = {
    "ledger_lease": "run_id",
    "ledger_run": "run_id",
    "ledger_operation": "operation_key",
    "ledger_dispatch": "operation_key",
}
"""The tables in the order in which their rows are locked, and the key by which rows of one are."""
WAITING = sorted(set(ACTIONS) - {"dispatch.repair", "dispatch.sweep_left_over"} - OF_TASKS)
FROM_THE_QUEUE = {"operation.claim", "unknown.expire_claims"}
"""They hold rows of the queue before they look at the leases, and wait for neither: they skip what is locked."""


def plant_alike(name: str) -> list[Row]:
    """Five rows on each of which the statement would do its work, in an order that is none."""
    crowd = [known(FENCES[name].plant()) for _ in range(5)]
    return sorted(crowd, key=lambda row: row.run_id, reverse=True)


def free_rows(observer: Observer, table: str) -> set[object]:
    """The keys of the rows that nobody has locked at this moment."""
    return observer.column(f"SELECT {LEVELS[table]} FROM {table} FOR NO KEY UPDATE SKIP LOCKED")  # noqa: S608 - ours


@pytest.mark.parametrize("table", ["ledger_lease", "ledger_run", "ledger_operation"])
@pytest.mark.parametrize("name", WAITING)
def test_whoever_waits_for_a_row_holds_none_that_comes_after_it(observer: Observer, name: str, table: str) -> None:
    """Lease, run, operation, queue, and in each by key: with one order for all, nobody waits in a circle."""
    crowd, key = plant_alike(name), LEVELS[table]
    one_by_one = name in ("unknown.resolve", "unknown.converge")
    wanted = crowd[0] if one_by_one else crowd[2]
    held = wanted.run_id if key == "run_id" else wanted.key
    with transaction.atomic():
        database.lock(table, key, held)
        rival = Rival(lambda: ACTIONS[name](crowd))
        waits = observer.see_waiting_or_done(rival)
        if waits:
            for level in list(LEVELS)[list(LEVELS).index(table) :]:
                if level == "ledger_dispatch" and name in FROM_THE_QUEUE:
                    continue
                every = {one[LEVELS[level]] for one in rows.rows(level)}
                after = {one for one in every if one > held} if level == table else every
                assert after <= free_rows(observer, level), f"it waits for {table}, but holds a later row of {level}"
    rival.result()
    skips = name in FROM_THE_QUEUE | {"run.finish_left_behind"}
    assert waits or table != "ledger_lease" or skips or name == "task.open_run", "it locks the lease before all else"


def test_a_statement_that_locks_in_the_order_that_it_was_asked_would_be_found(
    observer: Observer,
) -> None:
    unordered = LEDGER["lease.renew"].sql.replace(
        "ORDER BY lease.run_id FOR NO KEY", "ORDER BY lease.run_id DESC FOR NO KEY"
    )
    assert unordered != LEDGER["lease.renew"].sql
    with swapped(Statement("lease.renew", unordered)), pytest.raises(AssertionError, match="holds a later row"):
        test_whoever_waits_for_a_row_holds_none_that_comes_after_it(observer, "lease.renew", "ledger_lease")
