"""Jobs: long work that somebody asked for, done in short steps and resumed where it stood whatever happens.

A step is one transaction: it takes the job's row, does a bounded piece of work, and moves the row on. So a worker that
is killed has done nothing of the step it was in, two workers never do one step twice, and a cancelled job makes no
further step. Jobs take turns, a step each.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import InterfaceError, OperationalError

from deliveries import expunging, ids, recovering
from deliveries.models import JobKind
from deliveries.queries import DELIVERIES
from deliveries.steps import JobRow, Step
from ledger.statements import in_transaction

log = logging.getLogger("relay.jobs")

BATCH = 500
"""Rows that one step changes, at most."""
WORK_S = 10.0
"""How long a worker goes on before it lets others have its place."""
STALLED_MS = 15_000.0
"""A step that has been due for so long is in nobody's hands: a worker makes the next one at once."""
_WAIT_S = 0.05

KINDS: Mapping[str, Callable[[JobRow, int], Step]] = {
    JobKind.RECOVER: recovering.step,
    JobKind.EXPUNGE: expunging.step,
}


@dataclass(frozen=True, slots=True)
class Created:
    """A job that will be worked on, whatever happens to this process."""

    job_id: uuid.UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Job:
    job_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _Now:
    at: datetime


@dataclass(frozen=True, slots=True)
class _Next:
    due_for_ms: float


def create(
    tenant_id: str,
    kind: JobKind,
    parameters: Mapping[str, Any],
    *,
    actor: str,
    dry_run: bool = False,
    per_second: int | None = None,
    reason: str = "",
) -> Created:
    """Put a job on record. The caller rings `tasks.ring_for_jobs` once that is committed."""
    (made,) = DELIVERIES["job.create"].rows(
        Created,
        {
            "job_id": ids.time_ordered(),
            "tenant_id": tenant_id,
            "kind": kind.value,
            "dry_run": dry_run,
            "parameters": json.dumps(dict(parameters)),
            "per_second": per_second,
            "actor": actor,
            "reason": reason,
        },
    )
    return made


def cancel(tenant_id: str, job_id: uuid.UUID) -> bool:
    """No further step of the tenant's job; what was done stays done. False when it is over, or is none."""
    return bool(DELIVERIES["job.cancel"].rows(_Job, {"job_id": job_id, "tenant_id": tenant_id}))


def now() -> datetime:
    """The database's clock: what is accepted from now on is later."""
    return DELIVERIES["job.now"].rows(_Now, {})[0].at


def due_for_ms() -> float | None:
    """For how long the next step of some job has been due; negative: until it is; None: there is no unfinished job."""
    rows = DELIVERIES["job.next"].rows(_Next, {})
    return rows[0].due_for_ms if rows else None


def work(stop: Callable[[], bool], stepped: Callable[[Step], None]) -> bool:
    """Make steps until nothing is left, `stop` says so, or `WORK_S` is over; whether something is left.

    `stepped` hears of each step once it is committed. A database that is away leaves the step undone and is the
    caller's; whatever else a step raises ends its job.
    """
    until = time.monotonic() + WORK_S
    while not stop() and time.monotonic() < until:
        step = _step()
        if step is not None:
            stepped(step)
            continue
        due = due_for_ms()
        if due is None:
            return False
        # The rest is capped, or another worker has it in hand.
        time.sleep(_WAIT_S if due >= 0 else min(-due / 1000, _WAIT_S))
    return due_for_ms() is not None


def _step() -> Step | None:
    """The next step of the job that waited for longest; None when no job is due, or those that are have been taken."""
    taken: list[JobRow] = []

    def act() -> Step | None:
        taken[:] = DELIVERIES["job.take"].rows(JobRow, {"most": 1})
        if not taken:
            return None
        (job,) = taken
        step = KINDS[job.kind](job, BATCH if job.per_second is None else min(BATCH, job.per_second))
        pause_ms = 0.0 if job.per_second is None else 1000.0 * step.changed / job.per_second
        moved = DELIVERIES["job.advance"].rows(
            _Job,
            {
                "job_id": job.job_id,
                "revision": job.revision,
                "position": step.position,
                "walked": step.walked,
                "matched": step.matched,
                "changed": step.changed,
                "skipped": step.skipped,
                "pause_ms": pause_ms,
                "done": step.done,
            },
        )
        assert moved, "the row was held since it was read"
        return step

    try:
        return in_transaction(act)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        if not taken:
            raise
        # Nothing of the step was done. It would fail again: the job stops here, and the others go on.
        (job,) = taken
        log.exception("a step of %s failed", ids.render(ids.JOB, job.job_id))
        # After the first line, a database quotes the row.
        told = f"{type(error).__name__}: {error}".partition("\n")[0][:500]
        DELIVERIES["job.fail"].rows(_Job, {"job_id": job.job_id, "revision": job.revision, "error": told})
        return Step(job.position, 0, 0, 0, 0, done=True)
