"""Tasks: open them with their first run, open a new run for a replay, and let them leave their line."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from ledger.managers.batches import once
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER
from ledger.states import RunReason


@dataclass(frozen=True, slots=True)
class Intent:
    """One side effect to bring about. `event_id` is also where the exact bytes are kept; `due_at` None: at once.

    `in_line`: its endpoint gets it only when everything that was put in line there before it is settled.
    """

    tenant_id: str
    event_id: uuid.UUID
    endpoint_id: uuid.UUID
    request_digest: bytes
    step_id: str
    tool: str
    due_at: datetime | None = None
    in_line: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The keys of what was opened."""

    task_id: uuid.UUID
    run_id: uuid.UUID
    operation_key: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    task_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _RunRow:
    task_id: uuid.UUID
    refusal: str | None
    run_id: uuid.UUID | None
    operation_key: int | None
    seen_status: str | None


@dataclass(frozen=True, slots=True)
class _LeftRow:
    task_id: uuid.UUID
    refusal: str | None
    seen_status: str | None


def open_tasks(intents: Sequence[Intent]) -> list[Opened]:
    """Create task, run, lease, prepared operation and queue row for each intent, in one statement."""
    return LEDGER["task.open"].rows(
        Opened,
        {
            "tenant_ids": [one.tenant_id for one in intents],
            "event_ids": [one.event_id for one in intents],
            "endpoint_ids": [one.endpoint_id for one in intents],
            "request_digests": [one.request_digest for one in intents],
            "step_ids": [one.step_id for one in intents],
            "tools": [one.tool for one in intents],
            "due_ats": [one.due_at for one in intents],
            "in_lines": [one.in_line for one in intents],
        },
    )


def close(task_ids: Sequence[uuid.UUID]) -> None:
    """From now on no run of these tasks is opened (`CLOSED`). The runs that they have go on.

    Who opens a run of one of them at this moment is waited for, and the transaction's next statement sees that run.
    """
    LEDGER["task.close"].rows(_Awaited, {"task_ids": once(task_ids)})


def open_run(task_ids: Sequence[uuid.UUID], *, reason: RunReason) -> dict[uuid.UUID, Applied[Opened] | Rejected]:
    """A new run, with a new operation id, for each task whose last run is over.

    Refused when the task is closed (`CLOSED`), while that run goes on (`WRONG_STATUS`), and while an operation of the
    task is unsettled (`UNSETTLED`): a new id for an intent that may have happened would make it happen twice.
    """
    answers: dict[uuid.UUID, Applied[Opened] | Rejected] = {task_id: Rejected(Reason.MISSING) for task_id in task_ids}
    asked = {"task_ids": once(task_ids)}
    with transaction.atomic():
        LEDGER["task.await_openers"].rows(_Awaited, asked)
        rows = LEDGER["task.open_run"].rows(_RunRow, {**asked, "reason": reason.value})
    for row in rows:
        if row.refusal is not None:
            answers[row.task_id] = Rejected(Reason(row.refusal), seen_status=row.seen_status)
        else:
            assert row.run_id is not None and row.operation_key is not None
            answers[row.task_id] = Applied(Opened(row.task_id, row.run_id, row.operation_key))
    return answers


def leave_line(reasons: Mapping[uuid.UUID, str], *, actor: str) -> dict[uuid.UUID, Applied[str | None] | Rejected]:
    """Let tasks leave their line, each for its reason, which is kept for ever with `actor`; the status of what they
    wait to send where it was done.

    Guarantee: what stood behind one of them waits for it no longer, and it never comes back into the line.
    Refused when it stands in none (`NOT_IN_LINE`), when nothing of it is unsettled (`WRONG_STATUS`), while it is being
    sent (`CLAIMED`), and when there is no such task (`MISSING`). `ValueError` without a reason.
    """
    if not all(reason.strip() for reason in reasons.values()):
        raise ValueError("to leave a line needs a reason")
    task_ids = list(reasons)
    given = {"task_ids": task_ids, "reasons": [reason.strip() for reason in reasons.values()], "actor": actor}
    with transaction.atomic():
        LEDGER["task.await_openers"].rows(_Awaited, {"task_ids": task_ids})
        rows = LEDGER["task.leave_line"].rows(_LeftRow, given)
    return {
        row.task_id: Applied(row.seen_status)
        if row.refusal is None
        else Rejected(Reason(row.refusal), seen_status=row.seen_status)
        for row in rows
    }
