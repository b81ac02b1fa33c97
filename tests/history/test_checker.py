"""The checker finds nothing in a true history, and each kind of falsehood in a false one."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.history.checker import Rule, check
from tests.history.faults import MUTATIONS
from tests.history.forging import rewrite, swap
from tests.history.journal import Entry
from tests.history.recording import Recording

pytestmark = pytest.mark.usefixtures("db")


def test_a_true_history_of_the_real_engine_passes(recording: Recording) -> None:
    found = check(recording.history, recording.arrivals, accepted=recording.accepted)
    assert not found, "\n".join(str(one) for one in found)
    statements = Counter(entry.statement for entry in recording.history.entries)
    for name in (
        "event.accept", "operation.claim", "operation.settle", "attempt.record", "unknown.expire_claims",
        "unknown.schedule_retry", "unknown.resolve", "run.cancel", "task.open_run",
    ):  # fmt: skip
        assert statements[name], f"{name} is in no entry: {statements}"


def test_the_audit_finds_no_breach_in_the_middle_of_real_traffic(recording: Recording) -> None:
    assert not recording.breaches


def test_every_rule_has_a_mutation_that_breaks_it() -> None:
    assert {rule for rule, _ in MUTATIONS.values()} == set(Rule)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_false_history_is_found_out(recording: Recording, name: str) -> None:
    rule, mutation = MUTATIONS[name]
    false = mutation(recording)
    found = check(false.history, false.arrivals, accepted=false.accepted)
    assert rule in {one.rule for one in found}, "\n".join(str(one) for one in found) or "nothing was found"


FENCED = {
    "ledger_run": ("status", "revision", "task_id"),
    "ledger_lease": ("owner", "epoch"),
    "ledger_operation": (
        "status", "revision", "run_id", "request_digest", "dispatch_owner", "dispatch_epoch", "attempts",
    ),
    "deliveries_attempt": ("operation_key", "number", "epoch", "owner"),
}  # fmt: skip
"""What a fence compares, or what an identity is made of. Not how a step is called: of what was never sent, only its own
row says that."""


def another(value: Any, column: list[Any], dice: random.Random) -> Any:
    """A value of the same kind as `value`: one that another row has, or one that none has."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + dice.choice([-1, 1, 2, 7])
    others = [one for one in column if one not in {value, None} and not isinstance(one, dict | list)]
    return dice.choice(others) if others else f"{value}x"


def chosen(recording: Recording, seed: int, fenced: dict[str, tuple[str, ...]] | None) -> tuple[Entry, str, Any]:
    """An entry, one of its columns and another value for that, at random."""
    dice = random.Random(seed)
    entries = [one for one in recording.history.entries if one.new is not None]
    while True:
        entry = dice.choice([one for one in entries if fenced is None or one.table in fenced])
        name = dice.choice(sorted(entry.row) if fenced is None else fenced[entry.table])
        if entry.row[name] is None or isinstance(entry.row[name], dict | list):
            continue
        column = [one.row[name] for one in entries if one.table == entry.table]
        return entry, name, another(entry.row[name], column, dice)


@pytest.mark.parametrize("seed", range(200))
def test_any_field_of_any_entry_that_is_changed_is_found_out(recording: Recording, seed: int) -> None:
    """Every column: each entry must begin with what the one before it left, and the last is what stands there."""
    entry, name, value = chosen(recording, seed, None)
    false = swap(recording, replace(entry, new={**entry.row, name: value}))
    found = check(false.history, false.arrivals, accepted=false.accepted)
    assert found, f"{entry.table}.{name} {entry.row[name]!r} -> {value!r} in entry {entry.seq}"


@pytest.mark.parametrize("seed", range(200))
def test_a_fenced_column_that_is_changed_for_good_is_found_out(recording: Recording, seed: int) -> None:
    """The change is carried on to every later entry and to the row that stands: only the rules can tell."""
    entry, name, value = chosen(recording, seed, FENCED)
    false = rewrite(recording, entry, **{name: value})
    found = check(false.history, false.arrivals, accepted=false.accepted)
    assert found, f"{entry.table}.{name} {entry.row[name]!r} -> {value!r} in {entry.op} {entry.seq} ({entry.statement})"
