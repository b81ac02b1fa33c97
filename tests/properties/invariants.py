"""What must hold between any two moments of the ledger, whatever was tried in between."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from ledger.states import OPERATION_MOVES, OPERATION_TERMINAL, OPERATION_UNSETTLED, RUN_MOVES, RUN_TERMINAL, Move

Row = Mapping[str, Any]

TABLES = {
    "task": ("ledger_task", "task_id", "task_id = ANY(%s)"),
    "run": ("ledger_run", "run_id", "task_id = ANY(%s)"),
    "lease": ("ledger_lease", "run_id", "run_id IN (SELECT run_id FROM ledger_run WHERE task_id = ANY(%s))"),
    "operation": (
        "ledger_operation", "operation_key", "run_id IN (SELECT run_id FROM ledger_run WHERE task_id = ANY(%s))",
    ),
    "dispatch": (
        "ledger_dispatch", "operation_key", "run_id IN (SELECT run_id FROM ledger_run WHERE task_id = ANY(%s))",
    ),
}  # fmt: skip

IDENTITY = ("run_id", "step_id", "effect_version", "tool", "request_digest", "request_ref", "created_at")


@dataclass(frozen=True, slots=True)
class View:
    """Every row of some tasks at one moment of the database's clock, by table and key."""

    now: datetime
    task: Mapping[uuid.UUID, Row]
    run: Mapping[uuid.UUID, Row]
    lease: Mapping[uuid.UUID, Row]
    operation: Mapping[int, Row]
    dispatch: Mapping[int, Row]

    @classmethod
    def of(cls, tasks: Collection[uuid.UUID]) -> View:
        """Read them."""
        found: dict[str, dict[Any, Row]] = {}
        with connection.cursor() as cursor:
            for name, (table, key, condition) in TABLES.items():
                cursor.execute(f"SELECT * FROM {table} WHERE {condition}", [list(tasks)])  # noqa: S608 - our own names
                columns = [column.name for column in cursor.description or ()]
                rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
                found[name] = {row[key]: row for row in rows}
            cursor.execute("SELECT clock_timestamp()")
            (now,) = cursor.fetchone()
        return cls(now, **found)

    def live(self, run_id: uuid.UUID) -> bool:
        """Whether somebody holds the run's lease."""
        held = self.lease[run_id]
        return held["owner"] is not None and held["expires_at"] > self.now


def check_moment(now: View) -> None:
    """What holds at every moment."""
    for key, operation in now.operation.items():
        pointer, run = now.dispatch.get(key), now.run[operation["run_id"]]
        assert (pointer is not None) is (operation["status"] in OPERATION_UNSETTLED), (
            "one pointer for each unsettled one"
        )
        if pointer is not None:
            assert (pointer["unknown_since"] is not None) is (operation["status"] == "unknown")
            assert (pointer["until"] is not None) is (operation["dispatch_owner"] is not None)
            assert (operation["dispatch_epoch"] is not None) is (operation["dispatch_owner"] is not None)
            assert (pointer["run_id"], pointer["tenant_id"]) == (operation["run_id"], "default")
        if run["status"] == "cancelled":
            assert operation["status"] != "prepared", "what was only prepared is cancelled with its run"
        elif run["status"] in RUN_TERMINAL:
            assert operation["status"] in OPERATION_TERMINAL, "a run ends when the truth about all of it is known"
        assert (operation["dispatch_epoch"] or 0) <= now.lease[operation["run_id"]]["epoch"], "claimed under a term"
    assert set(now.dispatch) <= set(now.operation)
    _check_versions(now)
    for task_id, task in now.task.items():
        open_runs = [
            run_id for run_id, run in now.run.items() if run["task_id"] == task_id and run["status"] not in RUN_TERMINAL
        ]
        assert open_runs in ([], [task["active_run_id"]]), "one run at a time, and it is the task's"


def _check_versions(now: View) -> None:
    """The versions of a step follow one another, and only the last of them is not settled."""
    steps: dict[tuple[uuid.UUID, str], dict[int, str]] = {}
    for one in now.operation.values():
        steps.setdefault((one["run_id"], one["step_id"]), {})[one["effect_version"]] = one["status"]
    for versions in steps.values():
        assert sorted(versions) == list(range(1, len(versions) + 1)), "no version is left out"
        replaced = {status for version, status in versions.items() if version < len(versions)}
        assert replaced <= OPERATION_TERMINAL, "what may have happened has no next version"


def _check_losses(old: Row, new: Row, statement: str) -> None:
    """Counted by expiry alone, forgotten by a settle and by a person's retry."""
    if statement == "unknown.expire_claims" and old["revision"] != new["revision"]:
        assert new["losses"] == old["losses"] + 1
    elif statement in ("operation.settle", "unknown.resolve"):
        assert new["losses"] in (0, old["losses"])
    else:
        assert new["losses"] == old["losses"]


def check_step(before: View, now: View, statement: str) -> None:
    """What holds between two moments with one statement in between."""
    for run_id, old in before.lease.items():
        new = now.lease[run_id]
        assert new["epoch"] - old["epoch"] in (0, 1), "an epoch never falls"
        if old["owner"] is not None and old["owner"] != new["owner"] is not None:
            assert new["epoch"] == old["epoch"] + 1, "a new owner is a new term"
    for run_id, old in before.run.items():
        _check_row(old, now.run[run_id], statement, RUN_MOVES, RUN_TERMINAL, ("task_id", "reason", "created_at"))
    for key, old in before.operation.items():
        new = now.operation[key]
        _check_row(old, new, statement, OPERATION_MOVES, OPERATION_TERMINAL, IDENTITY)
        assert new["attempts"] - old["attempts"] in ((-1, 0) if statement == "operation.settle" else (0, 1))
        _check_losses(old, new, statement)
        if old["ambiguous"] and new["status"] == "prepared":
            assert statement == "unknown.converge", "a later refusal does not prove that the first send was not taken"


def _check_row(
    old: Row, new: Row, statement: str, moves: tuple[Move, ...], terminal: Collection[str], identity: tuple[str, ...]
) -> None:
    if old == new:
        return
    assert old["status"] not in terminal, "terminal stays terminal"
    assert new["revision"] == old["revision"] + 1, "each write is one revision"
    assert [new[name] for name in identity] == [old[name] for name in identity], "an identity never changes"
    made = [move for move in moves if (move.source, move.target) == (old["status"], new["status"])]
    assert statement in {move.statement for move in made}, f"{statement} moved {old['status']} to {new['status']}"
