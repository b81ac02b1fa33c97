"""`/v1/jobs`: long work that was asked for, how far it has come, and its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from deliveries import ids, jobs, recovering
from deliveries.api import find, pages, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import Error, gone_on, refusals
from deliveries.models import Job, JobKind, JobStatus, Scope

router = Router(tags=["Jobs"])


class JobItem(BaseModel):
    """Long work, done in steps and resumed where it stood whatever happens."""

    id: str = Field(examples=[schemas.JOB])
    kind: str = Field(json_schema_extra={"enum": list(JobKind.values)})
    status: str = Field(json_schema_extra={"enum": list(JobStatus.values)})
    dry_run: bool = Field(description="It counts, and changes nothing.")
    parameters: dict[str, Any] = Field(description="What it is about.")
    walked: int = Field(description="How many it has looked at.")
    matched: int = Field(description="How many of them it was to change.")
    changed: int = Field(description="How many of those it has changed; none in a dry run.")
    skipped: int = Field(description="How many of those it could not change, because they had gone on meanwhile.")
    progress: float | None = Field(description="How far it is, from 0 to 1; null: nobody can say.")
    per_second: int | None = Field(description="At most so many changes a second; null: no limit.")
    actor: str = Field(description="Who asked for it.")
    reason: str
    error: str = Field(description="Why it stopped, when it failed.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime


class JobPage(schemas.Page):
    items: list[JobItem]


class JobConflict(Error):
    """The job is over."""

    current: JobItem


class JobQuery(pages.PageQuery):
    """Filters of the list of jobs."""

    kind: Literal["recover", "expunge"] | None = None
    status: Literal["pending", "running", "done", "cancelled", "failed"] | None = None


def item(job: Job) -> JobItem:
    """A job as it is shown."""
    progress: float | None = None
    if job.status == JobStatus.DONE:
        progress = 1.0
    elif job.kind == JobKind.RECOVER:
        progress = recovering.progress(job.parameters, job.position)
    return JobItem(
        id=ids.render(ids.JOB, job.job_id),
        kind=job.kind,
        status=job.status,
        dry_run=job.dry_run,
        parameters=job.parameters,
        walked=job.walked,
        matched=job.matched,
        changed=job.changed,
        skipped=job.skipped,
        progress=progress,
        per_second=job.per_second,
        actor=job.actor,
        reason=job.reason,
        error=job.error,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        updated_at=job.updated_at,
    )


def made(response: HttpResponse, job_id: UUID) -> JobItem:
    """The answer to who asked for a job, and where to look for it."""
    response["Location"] = f"/v1/jobs/{ids.render(ids.JOB, job_id)}"
    return item(Job.objects.get(job_id=job_id))


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: JobPage, **refusals(422)},
    summary="List jobs",
    operation_id="list_jobs",
)
def list_jobs(request: Request, query: Query[JobQuery]) -> JobPage:
    """The tenant's jobs, newest first. Scope: `read`."""
    rows = Job.objects.filter(tenant_id=request.auth.tenant_id)
    if query.kind is not None:
        rows = rows.filter(kind=query.kind)
    if query.status is not None:
        rows = rows.filter(status=query.status)
    found, following = pages.newest_first(rows, "job", "job_id", query)
    return JobPage(items=[item(job) for job in found], next_cursor=following)


@router.get(
    "/{job_id}",
    auth=needs(Scope.READ),
    response={200: JobItem, **refusals(404)},
    summary="Read a job",
    operation_id="get_job",
)
def get_job(request: Request, job_id: str) -> JobItem:
    """How far a job has come. Ask again until `status` is `done`, `cancelled` or `failed`. Scope: `read`."""
    return item(_find(request.auth.tenant_id, job_id))


@router.post(
    "/{job_id}/cancel",
    auth=needs(Scope.OPERATE),
    response={200: JobItem, **refusals(404), 409: JobConflict},
    summary="Cancel a job",
    operation_id="cancel_job",
)
def cancel_job(request: Request, job_id: str) -> JobItem:
    """No further step of it is begun. What it has done stays done. 409 when it is over. Scope: `operate`."""
    found = _find(request.auth.tenant_id, job_id)
    cancelled = jobs.cancel(request.auth.tenant_id, found.job_id)
    now = item(_find(request.auth.tenant_id, job_id))
    if not cancelled:
        raise gone_on(f"It is over: it is {now.status}.", now)
    return now


def _find(tenant_id: str, text: str) -> Job:
    rows: QuerySet[Job] = Job.objects.filter(tenant_id=tenant_id)
    return find.by_id(rows, ids.JOB, text, "job")
