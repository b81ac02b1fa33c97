"""Expunging: the content of events is removed on request, and what is on record about them is kept without it.

Gone are the payload, metadata, headers and source of an event, what receivers answered to it, the errors that may quote
an answer, and what receivers said in words. Kept are ids, types, times, digests, verdicts: what was sent to whom stays
known, and an Idempotency-Key stays taken. `docs/expunge.md` says why.

Limits: PostgreSQL keeps what was removed in dead rows until they are vacuumed, in its log and in backups; and a request
that is on the wire at this moment is not called back.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from deliveries import ids, lines
from deliveries.queries import DELIVERIES
from deliveries.steps import JobRow, Step
from ledger.managers import lease, run, task
from ledger.models import Run, Task

STRETCH = 200
"""Events that one step looks at, at most."""
DELIVERIES_AT_ONCE = 2_000
"""Where the deliveries of a stretch come to so many, it ends: at most one event's more than that."""
_APART = timedelta(hours=1)
"""An event's key is made by a web process, its time by the database: how far their clocks may be apart."""
_LEAST = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class _Event:
    event_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _Job:
    job_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _Next:
    event_id: uuid.UUID
    whole: bool
    ends: bool


def is_expunged(event_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these events whose content was removed."""
    return {row.event_id for row in DELIVERIES["expunge.expunged"].rows(_Event, {"event_ids": list(event_ids)})}


def expunge(tenant_id: str, event_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Remove the content of these events of the tenant, in the current transaction; those that still had theirs.

    What still waits to be sent is cancelled first; what may have been sent keeps its truth, and is not sent again; and
    no run of theirs is opened any more. Whoever writes a run of theirs at this moment is waited for: what he wrote is
    removed as well, and what comes after the commit finds the event expunged and leaves the answer out.
    """
    wanted = {"event_ids": sorted(event_ids), "tenant_id": tenant_id}
    held = [row.event_id for row in DELIVERIES["expunge.hold"].rows(_Event, wanted)]
    if not held:
        return set()
    tasks = list(Task.objects.filter(event_id__in=held).values_list("task_id", flat=True))
    task.close(tasks)
    # Every run, in one order: the answer to an old one may be on its way too.
    lease.await_holders(list(Run.objects.filter(task_id__in=tasks).values_list("run_id", flat=True)))
    run.cancel(list(Task.objects.filter(task_id__in=tasks).values_list("active_run_id", flat=True)))
    for task_id in (
        Task.objects.filter(task_id__in=tasks, in_line=True).order_by("task_id").values_list("task_id", flat=True)
    ):
        lines.leave_cancelled(task_id)
    return {row.event_id for row in DELIVERIES["expunge.strip"].rows(_Event, wanted)}


def expunge_one(tenant_id: str, event_id: uuid.UUID, *, public_id: str, actor: str, reason: str) -> bool:
    """Remove the content of one event in the current transaction, and keep who asked for it and why; False: it was
    gone already, and nothing is written."""
    if not expunge(tenant_id, [event_id]):
        return False
    told = {
        "job_id": ids.time_ordered(), "tenant_id": tenant_id, "parameters": json.dumps({"event_id": public_id}),
        "actor": actor, "reason": reason,
    }  # fmt: skip
    DELIVERIES["expunge.note"].rows(_Job, told)
    return True


def parameters(before: datetime) -> dict[str, str]:
    """What a job of kind `expunge` is told: every event that was accepted before this time."""
    return {"before": before.isoformat()}


def step(job: JobRow, most: int) -> Step:
    """Expunge a stretch of a tenant's events, in the transaction that moves the job."""
    before = datetime.fromisoformat(json.loads(job.parameters)["before"])
    batch = min(most, STRETCH)
    rows = DELIVERIES["expunge.next"].rows(
        _Next,
        {
            "tenant_id": job.tenant_id,
            "after": job.position or _LEAST,
            "last": ids.first_at(before + _APART),
            "before": before,
            "batch": batch,
            "deliveries": DELIVERIES_AT_ONCE,
        },
    )
    whole = [row.event_id for row in rows if row.whole]
    changed = 0 if job.dry_run or not whole else len(expunge(job.tenant_id, whole))
    return Step(
        position=rows[-1].event_id if rows else job.position,
        walked=len(rows),
        matched=len(whole),
        changed=changed,
        skipped=0 if job.dry_run else len(whole) - changed,
        done=not rows or rows[-1].ends,
    )
