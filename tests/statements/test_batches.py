"""A batch that names a row twice: a set of keys says nothing more by it, and a set of writes is refused."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from ledger.managers import dispatch, lease, operation, run, task, unknown
from ledger.managers.operation import Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.unknown import Retry
from ledger.outcome import Applied
from ledger.states import RunReason
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, OWNER, TTL_MS, Planted

pytestmark = pytest.mark.django_db

MODULES: tuple[ModuleType, ...] = (dispatch, lease, operation, run, task, unknown)
RUN, KEY = uuid.uuid4(), 1


def _settlement() -> Settlement:
    return Settlement(rows.claim_of(rows.plant("dispatching")), Proof.ACCEPTED, None, None)


REFUSED: dict[str, Callable[[], Any]] = {
    "lease.renew": lambda: lease.renew([(RUN, 1), (RUN, 2)], owner=OWNER, ttl_ms=TTL_MS),
    "lease.release": lambda: lease.release([(RUN, 1), (RUN, 2)], owner=OWNER),
    "operation.settle": lambda: operation.settle([_settlement()] * 2, owner=OWNER),
    "operation.plan": lambda: operation.plan(
        [Plan(RUN, 1, 1, "deliver", version, "webhook", b"", RUN) for version in (1, 2)], owner=OWNER
    ),
    "run.start": lambda: run.start([Held(RUN, 1, 1), Held(RUN, 1, 2)], owner=OWNER),
    "run.save_checkpoint": lambda: run.save_checkpoint([Held(RUN, 1, 1), Held(RUN, 1, 2)], [1, 2], owner=OWNER),
    "run.succeed": lambda: run.succeed([Held(RUN, 1, 1), Held(RUN, 1, 2)], owner=OWNER),
    "run.fail": lambda: run.fail([Held(RUN, 1, 1), Held(RUN, 1, 2)], owner=OWNER),
    "unknown.schedule_retry": lambda: unknown.schedule_retry(
        [Retry(KEY, 1, None, None), Retry(KEY, 2, 0, HOUR_MS)], losses_below=3
    ),
}
DONE_ONCE: dict[str, tuple[str, Callable[[Planted], Any]]] = {
    "lease.acquire": ("prepared", lambda one: lease.acquire([one.run_id] * 2, owner=OWNER, ttl_ms=TTL_MS)),
    "lease.await_holders": ("prepared", lambda one: lease.await_holders([one.run_id] * 2)),
    "run.cancel": ("prepared", lambda one: run.cancel([one.run_id] * 2)),
    "task.close": ("failed_final", lambda one: task.close([one.task_id] * 2)),
    "task.open_run": ("failed_final", lambda one: task.open_run([one.task_id] * 2, reason=RunReason.REPLAY)),
    "operation.claim": ("prepared", lambda one: operation.claim([one.operation_key] * 2, owner=OWNER, ttl_ms=TTL_MS)),
}
TWO_THINGS = {"task.open_tasks": "two equal intents are two tasks"}


def test_every_function_that_takes_a_batch_is_here() -> None:
    batches = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if any(str(one.annotation).startswith("Sequence[") for one in inspect.signature(function).parameters.values())
    }
    assert batches == set(REFUSED) | set(DONE_ONCE) | set(TWO_THINGS)


@pytest.mark.parametrize("name", REFUSED)
def test_two_writes_of_one_row_are_no_batch(name: str) -> None:
    with pytest.raises(ValueError, match="a batch names each"):
        REFUSED[name]()
    assert rows.rows("ledger_fenced_write") == []


@pytest.mark.parametrize("name", DONE_ONCE)
def test_a_key_that_is_named_twice_is_done_once(name: str) -> None:
    status, act = DONE_ONCE[name]
    planted = rows.plant(status)
    epoch, runs = rows.lease(planted)["epoch"], len(rows.rows("ledger_run"))
    answer = act(planted)
    if isinstance(answer, dict):
        assert [type(one) for one in answer.values()] == [Applied]
    assert rows.lease(planted)["epoch"] == epoch + (name in ("lease.acquire", "operation.claim"))
    assert len(rows.rows("ledger_run")) == runs + (name == "task.open_run")
