"""Operations whose outcome is unknown: how they come to be, and what may move them on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger.managers.batches import check_once
from ledger.managers.operation import Proof, Settled, SettleRow, answers_of
from ledger.outcome import Applied, Rejected
from ledger.statements import LEDGER
from ledger.states import Decision


@dataclass(frozen=True, slots=True)
class Expired:
    """A claim that ran out: its operation is unknown now, and its owner fenced out.

    `lost_epoch` is the term under which it was claimed, whoever holds the lease since. `losses`: how many claims in a
    row ran out by now, this one included.
    """

    operation_key: int
    run_id: uuid.UUID
    tenant_id: str
    endpoint_id: uuid.UUID
    request_ref: uuid.UUID
    lost_owner: str
    lost_epoch: int
    attempts: int
    losses: int
    dispatched_at: datetime
    first_dispatched_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An unknown operation that will be sent again under the same id at `due_at`, or not by itself."""

    operation_key: int
    revision: int
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Retry:
    """A wish to send an unknown operation again, `retry_ms` from now, inside `window_ms` of its first dispatch.

    Without a `retry_ms`: to withdraw the retry that was planned.
    """

    operation_key: int
    revision: int
    retry_ms: int | None
    window_ms: int | None


def expire_claims(*, batch: int, owner: str) -> list[Expired]:
    """Turn claims that ran out into unknown operations, at most `batch` of them, and take over their leases."""
    return LEDGER["unknown.expire_claims"].rows(Expired, {"batch": batch, "owner": owner})


def schedule_retry(retries: Sequence[Retry], *, losses_below: int) -> list[Scheduled]:
    """Let unknown operations be sent again under the same id, where that is inside the receiver's window.

    What is not in the answer was not scheduled: the window is over, `losses_below` or more claims of it ran out in a
    row, or somebody moved the operation on. A withdrawal asks for neither window nor losses. A person's `retry` does
    not come this way. `ValueError` when a batch names an operation twice.
    """
    check_once((one.operation_key for one in retries), "operation")
    return LEDGER["unknown.schedule_retry"].rows(
        Scheduled,
        {
            "operation_keys": [one.operation_key for one in retries],
            "revisions": [one.revision for one in retries],
            "retry_ms": [one.retry_ms for one in retries],
            "window_ms": [one.window_ms for one in retries],
            "losses_below": losses_below,
        },
    )


def resolve(
    *, operation_key: int, actor: str, decision: Decision, reason: str, revision: int
) -> Applied[Settled] | Rejected:
    """A person settles an unknown operation, naming the revision that they saw. `RETRY` counts the losses anew.

    `CONFLICT` or `WRONG_STATUS` when somebody was first, `CLAIMED` while it is being sent again, `MISSING` when there
    is no such operation. `ValueError` without a reason.
    """
    if not reason.strip():
        raise ValueError("a resolution needs a reason")
    if decision is Decision.MOVED_ASIDE:
        raise ValueError("that settles nothing: it is for `task.leave_line`")
    answers = answers_of(
        LEDGER["unknown.resolve"].rows(
            SettleRow,
            {
                "operation_keys": [operation_key],
                "revisions": [revision],
                "decision": decision.value,
                "reason": reason.strip(),
                "actor": actor,
                "remote_id": None,
                "result": json.dumps({"resolved_by": actor, "decision": decision.value}),
            },
        )
    )
    return answers[operation_key]


def converge(
    *,
    operation_key: int,
    revision: int,
    proof: Proof,
    retry_ms: int | None,
    actor: str,
    evidence: Mapping[str, Any],
    remote_id: str | None = None,
) -> Applied[Settled] | Rejected:
    """Evidence settles an unknown operation: `ACCEPTED`, or an authoritative answer that it was not.

    `ACCEPTED` also ends one that is prepared for another try: that an earlier send had not been taken was said too
    soon, and the receiver must not get it again.
    `NOT_TAKEN`: it never arrived; prepared again with a `retry_ms`, failed without one, and where its run is over.
    `FINAL`: the receiver rejected it and never will take it; failed.

    `actor` names the evidence's source (an acknowledgement, a query, the reconciler). `ValueError` for any other proof:
    a refusal or a silence proves nothing about an earlier send.
    """
    if proof not in (Proof.ACCEPTED, Proof.NOT_TAKEN, Proof.FINAL):
        raise ValueError(f"{proof.value} does not settle an unknown operation")
    answers = answers_of(
        LEDGER["unknown.converge"].rows(
            SettleRow,
            {
                "operation_keys": [operation_key],
                "revisions": [revision],
                "verdicts": [proof.value],
                "retry_ms": [retry_ms],
                "actor": actor,
                "remote_id": remote_id,
                "result": json.dumps({"converged_by": actor, "evidence": dict(evidence)}),
            },
        )
    )
    return answers[operation_key]
