"""The model moves as `ledger/states.py` says, and as nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from ledger.states import OPERATION_MOVES, RUN_MOVES, Move
from tests.model.checking import MODEL

Made = tuple[str, str, str, str]

SEVERAL_STEPS = "needs a run of several steps; the model's run has one operation, which ends it"
NOT_MODELLED: dict[str, str] = {
    "run.start": "a claim starts the run; a program that starts one itself holds the lease as the taker does",
    "run.save_checkpoint": SEVERAL_STEPS,
    "operation.plan": SEVERAL_STEPS,
    "run.succeed": SEVERAL_STEPS,
    "run.fail": SEVERAL_STEPS,
    "run.finish_left_behind": SEVERAL_STEPS,
}

LEFT_OUT: dict[Made, str] = {
    ("prepared", "succeeded", "reconciler", "unknown.converge"): (
        "its evidence speaks of what is unknown; that a send was taken after all, while another one is prepared, is "
        "shown in tests/statements/test_vouching.py"
    ),
}


def drawn(macro: str) -> set[Made]:
    """The moves that stand in the model: each is the assignment itself."""
    text = re.sub(r"/\*.*?\*/", "", MODEL.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#ifdef EXPIRE_TO_PREPARED.*?#else", "", text, flags=re.DOTALL)
    text = re.sub(r"#define .*?[^\\]\n", "", text, flags=re.DOTALL)
    return {
        (source, target, by, statement)
        for source, target, by, statement in re.findall(rf"\b{macro}\((\w+), (\w+), (\w+), ([\w.]+)\)", text)
    }


def told(moves: Iterable[Move]) -> set[Made]:
    return {(str(one.source), str(one.target), str(one.by), one.statement) for one in moves}


@pytest.mark.parametrize(("macro", "moves"), [("OP_MOVE", OPERATION_MOVES), ("RUN_MOVE", RUN_MOVES)])
def test_the_model_makes_every_move_of_the_table_but_those_it_leaves_out(macro: str, moves: tuple[Move, ...]) -> None:
    assert drawn(macro) == {move for move in told(moves) if move[3] not in NOT_MODELLED} - set(LEFT_OUT)


def test_what_the_model_leaves_out_is_there_to_be_left_out() -> None:
    assert set(NOT_MODELLED) <= {move.statement for move in (*RUN_MOVES, *OPERATION_MOVES)}
    assert set(LEFT_OUT) <= told(OPERATION_MOVES)


@pytest.mark.parametrize(("variable", "macro"), [("status", "OP_MOVE"), ("run_status", "RUN_MOVE")])
def test_nothing_but_a_move_writes_a_status(variable: str, macro: str) -> None:
    text = MODEL.read_text(encoding="utf-8")
    text = re.sub(r"#ifdef FORGET_AMBIGUOUS.*?(#else|#endif)", "", text, flags=re.DOTALL)
    written = re.findall(rf"(?<!\w){variable} = (\w+)", text)
    assert sorted(written) == sorted(["to", "prepared" if variable == "status" else "pending"])
