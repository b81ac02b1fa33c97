"""The table of statuses and moves: whole, without a dead end, and the one that CHECKs and statements follow."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from django.apps import apps
from django.db import models

from ledger.models import Operation, Resolution, Run, one_of
from ledger.statements import LEDGER
from ledger.states import (
    OPERATION_MOVES,
    OPERATION_TERMINAL,
    OPERATION_UNSETTLED,
    RUN_MOVES,
    RUN_TERMINAL,
    Decision,
    Move,
    Mover,
    OperationStatus,
    RunReason,
    RunStatus,
)

MACHINES: dict[str, tuple[tuple[str, ...], tuple[Move, ...], frozenset[str], str]] = {
    "run": (tuple(RunStatus), RUN_MOVES, frozenset(RUN_TERMINAL), RunStatus.PENDING),
    "operation": (
        tuple(OperationStatus),
        OPERATION_MOVES,
        frozenset(OPERATION_TERMINAL),
        OperationStatus.PREPARED,
    ),
}


def reachable(moves: Iterable[Move], start: str) -> set[str]:
    found = {start}
    while more := {move.target for move in moves if move.source in found} - found:
        found |= more
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_status_can_be_reached_and_only_terminal_ones_cannot_be_left(machine: str) -> None:
    statuses, moves, terminal, start = MACHINES[machine]
    assert reachable(moves, start) == set(statuses)
    assert {status for status in statuses if not any(move.source == status for move in moves)} == terminal
    for status in set(statuses) - terminal:
        assert reachable(moves, status) & terminal, f"{status} never ends"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_move_names_statuses_and_a_statement_that_exist_and_is_there_once(machine: str) -> None:
    statuses, moves, _, _ = MACHINES[machine]
    assert len(set(moves)) == len(moves)
    for move in moves:
        assert {move.source, move.target} <= set(statuses)
        assert move.statement in LEDGER
        assert move.by in Mover


def test_an_operation_is_settled_exactly_when_its_status_is_terminal() -> None:
    assert set(OperationStatus) == OPERATION_UNSETTLED | OPERATION_TERMINAL
    assert not OPERATION_UNSETTLED & OPERATION_TERMINAL


def test_nothing_leads_from_unknown_back_to_prepared_but_an_authoritative_answer() -> None:
    back = {move.statement for move in OPERATION_MOVES if (move.source, move.target) == ("unknown", "prepared")}
    assert back == {"unknown.converge"}


def test_time_never_makes_an_operation_prepared_or_final() -> None:
    expired = {move.target for move in OPERATION_MOVES if move.statement == "unknown.expire_claims"}
    assert expired == {OperationStatus.UNKNOWN}


def test_only_the_control_plane_cancels_runs_and_nobody_cancels_what_may_have_been_taken() -> None:
    assert {move.by for move in RUN_MOVES if move.target == "cancelled"} == {Mover.CONTROL}
    cancels = {(move.by, move.statement) for move in OPERATION_MOVES if move.target == "cancelled"}
    assert cancels == {(Mover.CONTROL, "run.cancel"), (Mover.OWNER, "operation.plan")}, "or its next version is planned"
    assert {move.source for move in OPERATION_MOVES if move.target == "cancelled"} == {OperationStatus.PREPARED}


@pytest.mark.parametrize(("table", "moves"), [("ledger_run", RUN_MOVES), ("ledger_operation", OPERATION_MOVES)])
def test_every_statement_that_updates_a_row_has_its_moves_in_the_table(table: str, moves: tuple[Move, ...]) -> None:
    writers = {name for name, statement in LEDGER.items() if re.search(rf"UPDATE {table}\b", statement.sql)}
    assert writers == {move.statement for move in moves}


@pytest.mark.parametrize(("table", "moves"), [("ledger_run", RUN_MOVES), ("ledger_operation", OPERATION_MOVES)])
def test_a_statement_can_write_the_statuses_that_its_moves_lead_to_and_no_others(
    table: str, moves: tuple[Move, ...]
) -> None:
    """Read from its text: the words of the table that stand in the SET of its UPDATE."""
    statuses: type[models.TextChoices] = RunStatus if table == "ledger_run" else OperationStatus
    for name in {move.statement for move in moves}:
        sets = re.findall(
            rf"UPDATE {table} AS \w+\s+SET (.*?)(?:\n    FROM|\n    WHERE| FROM)", LEDGER[name].sql, re.DOTALL
        )
        words = {word for text in sets for word in re.findall(r"status = '(\w+)'|THEN '(\w+)'|ELSE '(\w+)'", text)}
        named = {one for word in words for one in word if one in statuses.values}
        targets = {move.target for move in moves if move.statement == name}
        assert named <= targets, name


@pytest.mark.parametrize(
    ("model", "constraint", "field", "choices"),
    [
        (Run, "run_status", "status", RunStatus),
        (Run, "run_reason", "reason", RunReason),
        (Operation, "operation_status", "status", OperationStatus),
        (Resolution, "resolution_decision", "decision", Decision),
    ],
)
def test_the_checks_of_the_tables_come_from_here(
    model: type[models.Model], constraint: str, field: str, choices: type[models.TextChoices]
) -> None:
    (found,) = [one for one in model._meta.constraints if one.name == constraint]
    assert isinstance(found, models.CheckConstraint)
    assert found.condition == one_of(field, choices)


def test_every_status_and_reason_has_a_docstring_line_of_its_own_in_the_source() -> None:
    from pathlib import Path

    import ledger.states

    text = Path(ledger.states.__file__).read_text(encoding="utf-8")
    for status in (*RunStatus, *OperationStatus):
        assert re.search(rf'    {status.name} = "{status.value}", "[^"]+"\n    """', text), status


def test_the_ledger_has_no_model_that_a_person_could_write() -> None:
    from ledger.models import LedgerModel

    assert all(issubclass(model, LedgerModel) for model in apps.get_app_config("ledger").get_models())
