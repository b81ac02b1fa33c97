"""Runs: the protected writes of whoever holds the lease, and the control plane's cancel."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from ledger.managers import lease
from ledger.managers.batches import check_once, once
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER


@dataclass(frozen=True, slots=True)
class Held:
    """What a protected write presents: the run, the epoch of the term, and the revision it relies on."""

    run_id: uuid.UUID
    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class Written:
    """A run after a write."""

    run_id: uuid.UUID
    revision: int
    status: str


@dataclass(frozen=True, slots=True)
class _Row:
    run_id: uuid.UUID
    refusal: str | None
    revision: int | None
    status: str | None
    seen_owner: str | None
    seen_epoch: int | None
    seen_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Patrolled:
    """How far a patrol came (None: the end of the key order) and how many runs it finished."""

    walked_to: uuid.UUID | None
    finished: int


Answer = Applied[Written] | Rejected


def _answers(rows: list[_Row]) -> dict[uuid.UUID, Answer]:
    answers: dict[uuid.UUID, Answer] = {}
    for row in rows:
        if row.refusal is not None:
            answers[row.run_id] = Rejected(
                Reason(row.refusal), row.seen_owner, row.seen_epoch, row.revision, row.status, row.seen_expires_at
            )
        else:
            assert row.revision is not None and row.status is not None
            answers[row.run_id] = Applied(Written(row.run_id, row.revision, row.status))
    return answers


def _protected(statement: str, held: Sequence[Held], owner: str, **more: Any) -> dict[uuid.UUID, Answer]:
    check_once((one.run_id for one in held), "run")
    return _answers(
        LEDGER[statement].rows(
            _Row,
            {
                "run_ids": [one.run_id for one in held],
                "epochs": [one.epoch for one in held],
                "revisions": [one.revision for one in held],
                "owner": owner,
                **more,
            },
        )
    )


def start(held: Sequence[Held], *, owner: str) -> dict[uuid.UUID, Answer]:
    """pending -> running."""
    return _protected("run.start", held, owner)


def save_checkpoint(held: Sequence[Held], checkpoints: Sequence[Any], *, owner: str) -> dict[uuid.UUID, Answer]:
    """Replace the checkpoint (a JSON value each) of running runs. Of two writes with one revision, one applies."""
    return _protected("run.save_checkpoint", held, owner, checkpoints=[json.dumps(one) for one in checkpoints])


def succeed(held: Sequence[Held], *, owner: str) -> dict[uuid.UUID, Answer]:
    """running -> succeeded; `UNSETTLED` while an operation of the run is not settled."""
    return _protected("run.succeed", held, owner)


def fail(held: Sequence[Held], *, owner: str) -> dict[uuid.UUID, Answer]:
    """running -> failed; `UNSETTLED` while an operation of the run is not settled. Only the lease's holder may."""
    return _protected("run.fail", held, owner)


def cancel(run_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Answer]:
    """pending or running -> cancelled, by the control plane: the caller has checked that its user may.

    Prepared operations are cancelled too and are never sent. What is dispatching or unknown is left as it is: it is
    never called unexecuted, its truth is still recorded, and it is not sent again.
    """
    with transaction.atomic():
        lease.await_holders(run_ids)
        return _answers(LEDGER["run.cancel"].rows(_Row, {"run_ids": once(run_ids)}))


def finish_left_behind(after: uuid.UUID, *, batch: int, owner: str) -> Patrolled:
    """Complete runs, in the stretch of `batch` runs after `after`, whose last operation is settled."""
    (patrolled,) = LEDGER["run.finish_left_behind"].rows(Patrolled, {"after": after, "batch": batch, "owner": owner})
    return patrolled
