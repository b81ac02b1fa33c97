"""What each operation was moved by: attempts in the same commit, a receiver's word, a person."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from deliveries.outcomes import Effect, judge
from tests.history.fold import Folded
from tests.history.journal import Entry, Row
from tests.history.rules import Rule, Violation

PROVEN = {
    "succeeded": {Effect.ACCEPTED},
    "prepared": {Effect.NOT_TAKEN},
    "failed_final": {Effect.NOT_TAKEN, Effect.FINAL},
    "unknown": set(Effect) - {Effect.ACCEPTED},
}
"""What an attempt must prove for `settle` to move its operation there."""
DECIDED = {"succeeded": "succeeded", "failed_final": "failed", "unknown": "retry"}
"""What a person must have decided for `resolve` to move an operation there."""
SAID = {
    "succeeded": {"processed"},
    "prepared": {"never_arrived"},
    "failed_final": {"rejected", "never_arrived"},
}
"""What a receiver must have said for `converge` to move an operation there."""


def as_uuid(text: object) -> uuid.UUID:
    """A UUID as the journal spells it."""
    return text if isinstance(text, uuid.UUID) else uuid.UUID(str(text))


def effect(attempt: Row) -> Effect:
    """What an attempt on record proves."""
    return judge(attempt["verdict"], attempt["http_status"], ()).effect


def judge_operations(seen: Folded, attempts: Mapping[Any, Mapping[int, Row]]) -> None:
    """Every move of every operation, and how each ended."""
    reports: dict[Any, list[Entry]] = defaultdict(list)
    for entries in list(seen.by_commit.values()):
        for entry in entries:
            if entry.table != "deliveries_attempt" or entry.op in {"DELETE", "TRUNCATE"}:
                continue
            reports[entry.row["operation_key"]].append(entry)
            if entry.op == "UPDATE" and entry.old is not None:
                _attempt_changed(seen, entry, entry.old)
    for key, entries in seen.operations.items():
        for entry in entries:
            if entry.op == "UPDATE" and entry.old is not None:
                _moved(seen, entry, entry.old, reports[key])
        _resent(seen, entries)
        _ended(seen, key, attempts.get(key, {}))


def words(seen: Folded, key: Any) -> list[Row]:
    """What the receiver said about an operation. A word about another run says nothing."""
    run_id = seen.last["ledger_operation"].get(key, {}).get("run_id")
    return [word for word in seen.of_operation("deliveries_acknowledgement", key) if word["run_id"] == run_id]


def vouched(seen: Folded, key: Any) -> bool:
    """Whether somebody else than our own attempts says that it was taken: its receiver, or a person."""
    said = any(word["said"] == "processed" and word["covers"] > 0 for word in words(seen, key))
    return said or "succeeded" in _decisions(seen, key)


def _decisions(seen: Folded, key: Any) -> set[str]:
    return {row["decision"] for row in seen.of_operation("ledger_resolution", key)}


def _attempt_changed(seen: Folded, entry: Entry, old: Row) -> None:
    if old["ended_at"] is not None or entry.row["ended_at"] is None or not entry.row["late"]:
        seen.accuse(Rule.ATTEMPT, entry, f"attempt {old['number']} was written again, and not as a late report")


def _moved(seen: Folded, entry: Entry, old: Row, reports: Iterable[Entry]) -> None:
    new, key = entry.row, entry.key[1]
    match entry.statement:
        case "operation.settle" if new["attempts"] == old["attempts"]:
            beside = [
                one.row
                for one in seen.beside(entry, "deliveries_attempt")
                if (one.row["operation_key"], one.row["number"]) == (key, old["attempts"])
            ]
            proven = PROVEN.get(new["status"], set())
            if not any(effect(one) in proven for one in beside):
                found = ", ".join(f"{one['verdict']} {one['http_status']}" for one in beside) or "no attempt"
                seen.accuse(Rule.PROOF, entry, f"settled as {new['status']}, with {found} on record beside it")
        case "unknown.expire_claims":
            if not any(row["number"] == old["attempts"] for row in seen.of_operation("deliveries_attempt", key)):
                seen.accuse(Rule.PROOF, entry, f"attempt {old['attempts']} was lost, and nothing on record says so")
        case "unknown.resolve":
            decided = {
                (one.row["decision"], one.row["revision_seen"])
                for one in seen.beside(entry, "ledger_resolution")
                if one.row["operation_key"] == key
            }
            if (DECIDED.get(new["status"]), old["revision"]) not in decided:
                seen.accuse(
                    Rule.STICKY, entry, f"resolved as {new['status']}; decisions on record: {decided or 'none'}"
                )
        case "unknown.converge":
            _converged(seen, entry, reports)
        case _:
            if old["status"] == "unknown" != new["status"] and entry.statement != "operation.settle":
                seen.accuse(Rule.STICKY, entry, f"{entry.statement or 'SQL of no name'} made it {new['status']}")


def _converged(seen: Folded, entry: Entry, reports: Iterable[Entry]) -> None:
    """By a word, or by its attempts: a late acceptance, or that each that was begun is refused; on record before it.

    What came late counts for the very request that it was about. Both are written under the lock of the run's lease, so
    their order in the journal is their order.
    """
    key, status, attempts = entry.key[1], entry.row["status"], entry.row["attempts"]
    said = {
        word["said"]
        for word in words(seen, key)
        if word["run_id"] == entry.row["run_id"]
        and seen.said[word["acknowledgement_id"]] < entry.seq
        and (word["covers"] == attempts if word["said"] == "never_arrived" else word["covers"] > 0)
        and (word["said"] != "never_arrived" or word["source"] == "query")
    }
    digest = str(entry.row["request_digest"]).removeprefix("\\x")
    known = {one.row["number"]: one.row for one in sorted(reports, key=lambda one: one.seq) if one.seq < entry.seq}
    own = [row for row in known.values() if not row["late"] or (row["evidence"] or {}).get("request_digest") == digest]
    late = any(row["late"] and effect(row) is Effect.ACCEPTED for row in own)
    refused = {row["number"] for row in own if effect(row) in PROVEN["failed_final"]}
    everything = attempts > 0 and refused >= set(range(1, attempts + 1))
    if not said & SAID.get(status, set()) and not (late if status == "succeeded" else everything):
        seen.accuse(Rule.STICKY, entry, f"it became {status} by evidence, and nothing on record says so")


def _resent(seen: Folded, entries: list[Entry]) -> None:
    """A claim of what is ambiguous needs a receiver that drops duplicates, or a person who said so."""
    since, allowed = 0, False
    for entry in entries:
        old, new = entry.old if entry.op == "UPDATE" else None, entry.row
        if new["ambiguous"] and (old is None or not old["ambiguous"]):
            since = entry.seq
        if old is None:
            continue
        if entry.statement == "unknown.resolve" and new["status"] == "unknown":
            allowed = True
        elif old["dispatch_owner"] is None and new["dispatch_owner"] is not None and old["ambiguous"]:
            if not allowed and not _dropped_duplicates(seen, new["run_id"], since, entry.seq):
                seen.accuse(Rule.RESENT, entry, f"attempt {new['attempts']} was begun, and nobody asked for it")
        elif old["dispatch_owner"] is not None and new["attempts"] == old["attempts"]:
            allowed = False  # the send that was asked for has been made


def _dropped_duplicates(seen: Folded, run_id: Any, since: int, until: int) -> bool:
    task = seen.last["ledger_task"].get(seen.last["ledger_run"].get(run_id, {}).get("task_id"), {})
    versions = seen.endpoints.get(task.get("endpoint_id"), [])
    before = [one for one in versions if one.seq <= since][-1:]
    return any(one.row["idempotent"] for one in [*before, *(one for one in versions if since < one.seq < until)])


def _ended(seen: Folded, key: Any, attempts: Mapping[int, Row]) -> None:
    row = seen.last["ledger_operation"].get(key)
    if row is None:
        return
    begun = row["attempts"] - (row["dispatch_owner"] is not None)
    missing = [number for number in range(1, begun + 1) if number not in attempts]
    stray = [number for number in attempts if number > row["attempts"]]
    if missing or stray:
        what = f"{row['attempts']} attempts were begun; {missing} are not on record, {stray} are too many"
        seen.violations.append(Violation(Rule.GAPLESS, "ledger_operation", key, what))
    if row["status"] == "failed_final":
        doubtful = [number for number, one in attempts.items() if effect(one) not in PROVEN["failed_final"]]
        authority = "failed" in _decisions(seen, key) or any(
            (word["said"] == "rejected" and word["covers"] > 0)
            or (
                (word["said"], word["source"]) == ("never_arrived", "query")
                and word["covers"] >= max(doubtful, default=1)
            )
            for word in words(seen, key)
        )
        if (doubtful or not attempts) and not authority:
            what = f"attempts {doubtful or 'none'} do not prove it, and nobody else says so"
            seen.violations.append(Violation(Rule.FAILED, "ledger_operation", key, what))
