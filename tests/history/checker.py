"""Judges a recorded history of the ledger, and what receivers counted of it: a sort, a fold, a look at each end.

    violations = check(journal.read(dsn), arrivals)

Limit: `seq` orders the writes of one row, not the commits of several (see `journal.py`), and an arrival's time is held
against the moment at which its claim was journalled, just before that committed. Receiver and database must share a
clock. A history is judged as ended: what is due is said to be lost, so wait until all is quiet before it is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from deliveries import ids
from ledger.states import OPERATION_TERMINAL, OPERATION_UNSETTLED, RUN_TERMINAL
from tests.history import evidence, wire
from tests.history.fold import Folded, fold
from tests.history.journal import History, Row
from tests.history.rules import Rule, Violation
from tests.history.wire import Arrival

__all__ = ["Arrival", "Rule", "Violation", "check"]


def check(
    history: History, arrivals: Iterable[Arrival] | None = None, *, accepted: Collection[str] | None = None
) -> list[Violation]:
    """Every breach of a rule. `accepted`: the ids (`evt_…`) of events that got 202, none of which may be missing.

    Without `arrivals` the rules about receivers are not judged.
    """
    seen = fold(history)
    attempts = _attempts(seen)
    _records(seen)
    evidence.judge_operations(seen, attempts)
    _belong(seen)
    _runs(seen)
    _events(seen, history, accepted)
    if arrivals is not None:
        wire.judge_arrivals(seen, attempts, arrivals)
    return sorted(seen.violations, key=lambda one: (one.seq is None, one.seq or 0))


def _records(seen: Folded) -> None:
    """One operation for each intent; one attempt for each number, of a claim that was made."""
    intents: dict[tuple[Any, ...], Any] = {}
    for key, row in seen.last["ledger_operation"].items():
        intent = (row["run_id"], row["step_id"], row["effect_version"])
        if intents.setdefault(intent, key) != key:
            what = f"operation {intents[intent]} is the same intent"
            seen.violations.append(Violation(Rule.INTENT, "ledger_operation", key, what))
    numbers: set[tuple[Any, int]] = set()
    for attempt_id, row in seen.last["deliveries_attempt"].items():
        key, number = row["operation_key"], row["number"]
        if (key, number) in numbers:
            what = f"attempt {number} of operation {key} is on record twice"
            seen.violations.append(Violation(Rule.ATTEMPT, "deliveries_attempt", attempt_id, what))
        numbers.add((key, number))
        if not any(
            (one.number, one.epoch, one.owner) == (number, row["epoch"], row["owner"]) for one in seen.claims[key]
        ):
            what = f"{row['owner']} never claimed operation {key} as attempt {number} in epoch {row['epoch']}"
            seen.violations.append(Violation(Rule.ATTEMPT_CLAIM, "deliveries_attempt", attempt_id, what))


def _attempts(seen: Folded) -> dict[Any, dict[int, Row]]:
    found: dict[Any, dict[int, Row]] = defaultdict(dict)
    for row in seen.last["deliveries_attempt"].values():
        found[row["operation_key"]][row["number"]] = row
    return found


def _belong(seen: Folded) -> None:
    tasks, runs, events = (seen.last[name] for name in ("ledger_task", "ledger_run", "deliveries_event"))
    for task_id, task in tasks.items():
        active = runs.get(task["active_run_id"])
        if active is None or active["task_id"] != task_id:
            what = f"its active run {task['active_run_id']} is none of its runs"
            seen.violations.append(Violation(Rule.BELONGS, "ledger_task", task_id, what))
    for key, row in seen.last["ledger_operation"].items():
        task = tasks.get(runs.get(row["run_id"], {}).get("task_id"), {})
        event = events.get(row["request_ref"], {})
        if (row["request_ref"], row["request_digest"]) != (task.get("event_id"), event.get("digest")):
            what = f"it sends {row['request_ref']}, and its task is about {task.get('event_id')}, or the digests differ"
            seen.violations.append(Violation(Rule.BELONGS, "ledger_operation", key, what))


def _runs(seen: Folded) -> None:
    statuses: dict[Any, list[str]] = defaultdict(list)
    for row in seen.last["ledger_operation"].values():
        statuses[row["run_id"]].append(row["status"])
    for run_id, run in seen.last["ledger_run"].items():
        of, status = statuses[run_id], run["status"]
        wrong = (
            (status == "succeeded" and ("succeeded" not in of or not set(of) <= OPERATION_TERMINAL))
            or (status == "failed" and ("failed_final" not in of or not set(of) <= OPERATION_TERMINAL))
            or (status == "cancelled" and "prepared" in of)
            or (status not in RUN_TERMINAL and not set(of) & OPERATION_UNSETTLED)
        )
        if wrong:
            what = f"it is {status}, and its operations are {', '.join(sorted(of)) or 'not there'}"
            seen.violations.append(Violation(Rule.RUN, "ledger_run", run_id, what))


def _is_closed(seen: Folded, operation: Row) -> bool:
    """Whether it waits at an endpoint that is switched off: visibly, for a person to open it again."""
    task = seen.last["ledger_task"].get(seen.last["ledger_run"].get(operation["run_id"], {}).get("task_id"), {})
    versions = seen.endpoints.get(task.get("endpoint_id"), [])
    return operation["status"] == "prepared" and bool(versions) and not versions[-1].row["enabled"]


def _events(seen: Folded, history: History, accepted: Collection[str] | None) -> None:
    tasks: dict[Any, list[Row]] = defaultdict(list)
    for task in seen.last["ledger_task"].values():
        tasks[task["event_id"]].append(task)
    known = {ids.render(ids.EVENT, evidence.as_uuid(key)) for key in seen.last["deliveries_event"]}
    for webhook_id in sorted(set(accepted or ()) - known):
        what = "it was accepted and is not on record"
        seen.violations.append(Violation(Rule.LOST, "deliveries_event", webhook_id, what))
    for event_id, event in seen.last["deliveries_event"].items():
        if len(tasks[event_id]) != event["deliveries"]:
            what = f"it has {len(tasks[event_id])} deliveries and was accepted for {event['deliveries']}"
            seen.violations.append(Violation(Rule.LOST, "deliveries_event", event_id, what))
    waiting = seen.last["ledger_dispatch"]
    active = {task["active_run_id"] for one in tasks.values() for task in one}
    covered = set()
    for key, row in seen.last["ledger_operation"].items():
        covered.add(row["run_id"])
        if row["run_id"] not in active or row["status"] in OPERATION_TERMINAL:
            continue
        pointer = waiting.get(key)
        if pointer is None:
            lost: str | None = f"it is {row['status']}, and nothing points at it"
        elif row["status"] == "unknown":
            lost = None if pointer["unknown_since"] is not None else "it is unknown, and nobody is shown that"
        else:
            later = _is_closed(seen, row) or (
                pointer["due_at"] is not None and datetime.fromisoformat(pointer["due_at"]) > history.read_at
            )
            lost = None if later else f"it is still {row['status']}"
        if lost is not None:
            seen.violations.append(Violation(Rule.LOST, "ledger_operation", key, lost))
    for run_id in sorted(active - covered):
        what = "the active run of a task has no operation"
        seen.violations.append(Violation(Rule.LOST, "ledger_run", run_id, what))
