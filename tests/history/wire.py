"""What receivers counted, held against the claims and attempts on record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deliveries.outcomes import ANSWERED, NOT_SENT, Effect
from ledger import identity
from tests.history import evidence
from tests.history.fold import Folded
from tests.history.journal import Row
from tests.history.rules import Rule, Violation


@dataclass(frozen=True, slots=True)
class Arrival:
    """One complete request as a receiver counted it, and the status it answered with; None: it did not answer.

    `operation_id` is its `idempotency-key`, `attempt` and `epoch` its `relay-attempt` and `relay-epoch`.
    """

    operation_id: str
    attempt: int
    epoch: int
    webhook_id: str
    answered: int | None
    at: datetime


Attempts = Mapping[Any, Mapping[int, Row]]
Arrived = Mapping[tuple[Any, int], list[Arrival]]


def judge_arrivals(seen: Folded, attempts: Attempts, arrivals: Iterable[Arrival]) -> None:
    """Evidence before the wire, each attempt once, and no word of ours that the receiver's count contradicts."""
    keys = _operation_ids(seen)
    arrived: dict[tuple[Any, int], list[Arrival]] = defaultdict(list)
    for one in sorted(arrivals, key=lambda arrival: arrival.at):
        key = keys.get(one.operation_id)
        arrived[key, one.attempt].append(one)
        for rule, what in _breaches(seen, attempts, key, one, again=len(arrived[key, one.attempt]) > 1):
            subject = one.operation_id if key is None else key
            about = f"attempt {one.attempt} in epoch {one.epoch} arrived at {one.at:%H:%M:%S.%f}, {what}"
            seen.violations.append(Violation(rule, "ledger_operation", subject, about))
    _receipts(seen, attempts, arrived)


def _breaches(seen: Folded, attempts: Attempts, key: Any, one: Arrival, *, again: bool) -> Iterable[tuple[Rule, str]]:
    claims = [claim for claim in seen.claims.get(key, ()) if (claim.number, claim.epoch) == (one.attempt, one.epoch)]
    if not any(claim.at <= one.at for claim in claims):
        yield Rule.UNCLAIMED_ARRIVAL, "and was claimed only later" if claims else "and was never claimed"
    if again:
        yield Rule.REPEATED_ARRIVAL, "again"
    row, operation = attempts.get(key, {}).get(one.attempt), seen.last["ledger_operation"].get(key)
    if row is not None and row["epoch"] == one.epoch:
        if row["verdict"] == NOT_SENT:
            yield Rule.FALSE_NON_DELIVERY, f"and is recorded as not sent ({row['error']})"
    elif operation is None or operation["dispatch_owner"] is None or operation["attempts"] != one.attempt:
        yield Rule.UNRECORDED_ARRIVAL, "and no attempt on record speaks of it"


def _receipts(seen: Folded, attempts: Attempts, arrived: Arrived) -> None:
    for key, operation in seen.last["ledger_operation"].items():
        taken = False
        for number, row in attempts.get(key, {}).items():
            answers = [one.answered for one in arrived.get((key, number), ()) if one.epoch == row["epoch"]]
            taken = taken or any(answer is not None and 200 <= answer < 300 for answer in answers)
            heard = [answer for answer in answers if answer is not None]
            accepted = row["verdict"] == ANSWERED and evidence.effect(row) is Effect.ACCEPTED
            if row["verdict"] == ANSWERED and not accepted and heard and row["http_status"] not in heard:
                what = f"attempt {number} is recorded as answered {row['http_status']}; the receiver answered {heard}"
                seen.violations.append(
                    Violation(Rule.FALSE_NON_DELIVERY, "deliveries_attempt", row["attempt_id"], what)
                )
            if accepted and row["http_status"] not in answers:
                what = f"attempt {number} is recorded as answered {row['http_status']}; the receiver answered {answers}"
                seen.violations.append(Violation(Rule.FALSE_RECEIPT, "deliveries_attempt", row["attempt_id"], what))
        if operation["status"] == "succeeded" and not taken and not evidence.vouched(seen, key):
            what = "it is succeeded, and its receiver answered none of its attempts with 2xx"
            seen.violations.append(Violation(Rule.FALSE_RECEIPT, "ledger_operation", key, what))


def _operation_ids(seen: Folded) -> dict[str, Any]:
    found = {}
    for key, row in seen.last["ledger_operation"].items():
        run = seen.last["ledger_run"].get(row["run_id"], {})
        task = seen.last["ledger_task"].get(run.get("task_id"), {})
        run_id = evidence.as_uuid(row["run_id"])
        found[identity.compose(task.get("tenant_id", ""), run_id, row["step_id"], row["effect_version"])] = key
    return found
