"""Operations: claim, settle, and what may be done about one whose outcome is unknown."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import transaction

from ledger.managers.batches import check_once, once
from ledger.managers.lease import await_holders, check_ttl
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER


class Proof(StrEnum):
    """What the evidence of an attempt proves. It decides the move, together with what is already on record."""

    ACCEPTED = "accepted"
    """The receiver took it."""
    NOT_TAKEN = "not_taken"
    """The receiver verifiably did not take it; it may be tried again."""
    FINAL = "final"
    """The receiver verifiably did not take it and never will."""
    AMBIGUOUS = "ambiguous"
    """It may have been taken."""
    UNSENT = "unsent"
    """Given back before any attempt was made: it costs no try."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed operation: all that its owner must know, and present when it settles."""

    operation_key: int
    run_id: uuid.UUID
    task_id: uuid.UUID
    tenant_id: str
    endpoint_id: uuid.UUID
    request_ref: uuid.UUID
    request_digest: bytes
    step_id: str
    effect_version: int
    status: str
    revision: int
    attempts: int
    ambiguous: bool
    first_dispatched_at: datetime
    dispatched_at: datetime
    epoch: int
    expires_at: datetime
    run_revision: int


@dataclass(frozen=True, slots=True)
class _ClaimRow:
    operation_key: int
    refusal: str | None
    run_id: uuid.UUID
    task_id: uuid.UUID
    tenant_id: str
    endpoint_id: uuid.UUID
    request_ref: uuid.UUID
    request_digest: bytes
    step_id: str
    effect_version: int
    status: str
    revision: int
    attempts: int
    ambiguous: bool
    first_dispatched_at: datetime
    dispatched_at: datetime
    epoch: int
    expires_at: datetime
    run_revision: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of one claimed operation.

    `retry_ms`: try again after so many milliseconds; None: no tries left. `window_ms`: how long after the first
    dispatch the receiver drops duplicates; None: it promises nothing, so an unknown outcome is never resent by itself.
    `evidence` is kept when the write is refused: what really arrived is never dropped.
    """

    claim: Claimed
    proof: Proof
    retry_ms: int | None
    window_ms: int | None
    result: Mapping[str, Any] | None = None
    remote_id: str | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """An operation after a write."""

    operation_key: int
    status: str
    revision: int
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class SettleRow:
    operation_key: int
    refusal: str | None
    status: str | None
    revision: int | None
    due_at: datetime | None
    seen_owner: str | None
    seen_epoch: int | None
    seen_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Plan:
    """An intent to register under a held lease, on the run's `revision` that it relies on."""

    run_id: uuid.UUID
    epoch: int
    revision: int
    step_id: str
    effect_version: int
    tool: str
    request_digest: bytes
    request_ref: uuid.UUID
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """A registered intent, and the revision that its run has now."""

    operation_key: int
    run_revision: int


@dataclass(frozen=True, slots=True)
class _PlanRow:
    run_id: uuid.UUID
    step_id: str
    effect_version: int
    refusal: str | None
    operation_key: int | None
    run_revision: int | None
    seen_status: str | None
    seen_owner: str | None
    seen_epoch: int | None
    seen_expires_at: datetime | None


def answers_of(rows: list[SettleRow]) -> dict[int, Applied[Settled] | Rejected]:
    answers: dict[int, Applied[Settled] | Rejected] = {}
    for row in rows:
        if row.refusal is not None:
            answers[row.operation_key] = Rejected(
                Reason(row.refusal), row.seen_owner, row.seen_epoch, row.revision, row.status, row.seen_expires_at
            )
        else:
            assert row.status is not None and row.revision is not None
            answers[row.operation_key] = Applied(Settled(row.operation_key, row.status, row.revision, row.due_at))
    return answers


def claim(operation_keys: Sequence[int], *, owner: str, ttl_ms: int) -> tuple[list[Claimed], dict[int, Reason]]:
    """Take due operations for dispatch, each with its run's lease, for `ttl_ms`.

    Guarantee: what is answered as claimed is on record (owner, epoch, revision, attempt number) once the transaction
    commits, and nobody else can claim it until its lease expired. Limit: an operation that another transaction holds
    locked is in neither answer; it stays due.
    """
    claimed: list[Claimed] = []
    refused: dict[int, Reason] = {}
    for row in LEDGER["operation.claim"].rows(
        _ClaimRow, {"operation_keys": once(operation_keys), "owner": owner, "ttl_ms": check_ttl(ttl_ms)}
    ):
        if row.refusal is not None:
            refused[row.operation_key] = Reason(row.refusal)
            continue
        claimed.append(
            Claimed(
                row.operation_key, row.run_id, row.task_id, row.tenant_id, row.endpoint_id, row.request_ref,
                row.request_digest, row.step_id, row.effect_version, row.status, row.revision, row.attempts,
                row.ambiguous, row.first_dispatched_at, row.dispatched_at, row.epoch, row.expires_at, row.run_revision,
            )
        )  # fmt: skip
    return claimed, refused


def held_by(owner: str) -> list[Claimed]:
    """What `owner` holds and may settle: the read-back after a claim whose COMMIT was not answered."""
    return LEDGER["operation.held_by"].rows(Claimed, {"owner": owner})


def settle(settlements: Sequence[Settlement], *, owner: str) -> dict[int, Applied[Settled] | Rejected]:
    """Write outcomes, give the leases back and let the runs follow, with an answer for each operation.

    A refused row changes nothing; the refusal and the evidence it carried are recorded as a fenced write.
    `ValueError` when a batch names an operation twice: only one of two outcomes could be the one that was written.
    """
    claims = [one.claim for one in settlements]
    check_once((one.operation_key for one in claims), "operation")
    return answers_of(
        LEDGER["operation.settle"].rows(
            SettleRow,
            {
                "owner": owner,
                "operation_keys": [one.operation_key for one in claims],
                "run_ids": [one.run_id for one in claims],
                "epochs": [one.epoch for one in claims],
                "revisions": [one.revision for one in claims],
                "run_revisions": [one.run_revision for one in claims],
                "request_digests": [one.request_digest for one in claims],
                "verdicts": [one.proof.value for one in settlements],
                "retry_ms": [one.retry_ms for one in settlements],
                "window_ms": [one.window_ms for one in settlements],
                "remote_ids": [one.remote_id for one in settlements],
                "results": [_json(one.result) for one in settlements],
                "evidences": [_json(one.evidence) for one in settlements],
            },
        )
    )


def plan(plans: Sequence[Plan], *, owner: str) -> dict[tuple[uuid.UUID, str, int], Applied[Planned] | Rejected]:
    """Register intents in the transaction of the checkpoint that plans them, and raise their runs' revisions by one.

    The same id with the same tool and digest is the same intent, and changes nothing; with others it is an `INTEGRITY`
    error. A changed effect is the next version of its step (`GAP` when the one before was never planned): the version
    before is cancelled where it is still prepared, stays as it is where it is settled, and refuses the new one
    (`UNSETTLED`, with its status) while it is on its way, because it may have happened.
    `ValueError` when a batch names a step of a run twice.
    """
    check_once(((one.run_id, one.step_id) for one in plans), "step of a run")
    with transaction.atomic():
        await_holders([one.run_id for one in plans])
        rows = LEDGER["operation.plan"].rows(
            _PlanRow,
            {
                "run_ids": [one.run_id for one in plans],
                "epochs": [one.epoch for one in plans],
                "revisions": [one.revision for one in plans],
                "step_ids": [one.step_id for one in plans],
                "effect_versions": [one.effect_version for one in plans],
                "tools": [one.tool for one in plans],
                "request_digests": [one.request_digest for one in plans],
                "request_refs": [one.request_ref for one in plans],
                "due_ms": [one.due_ms for one in plans],
                "owner": owner,
            },
        )
    answers: dict[tuple[uuid.UUID, str, int], Applied[Planned] | Rejected] = {}
    for row in rows:
        if row.refusal is not None:
            answer: Applied[Planned] | Rejected = Rejected(
                Reason(row.refusal), row.seen_owner, row.seen_epoch, row.run_revision, row.seen_status,
                row.seen_expires_at,
            )  # fmt: skip
        else:
            assert row.operation_key is not None and row.run_revision is not None
            answer = Applied(Planned(row.operation_key, row.run_revision))
        answers[row.run_id, row.step_id, row.effect_version] = answer
    return answers


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)
