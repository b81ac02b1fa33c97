"""Recovery: everything that failed in some time, delivered once more by a job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from ninja import Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import jobs
from deliveries.api import find
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, invalid_field, refusals
from deliveries.api.jobs import JobItem, made
from deliveries.api.times import Time
from deliveries.models import JobKind, Scope
from deliveries.recovering import Filter
from deliveries.rules import columns
from deliveries.rules.broken import RuleBroken
from deliveries.tasks import ring_for_jobs

router = Router(tags=["Replay and recovery"])

FASTEST = 10_000


class Recover(BaseModel):
    """Which deliveries to deliver once more."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"since": "2026-01-31T09:30:00Z", "dry_run": True},
                {"since": "2026-01-31T09:30:00Z", "until": "2026-02-01T00:00:00Z", "types": ["invoice.*"],
                 "status": ["failed", "cancelled"], "per_second": 100},
            ]
        },
    )  # fmt: skip

    since: Time = Field(description="Of events that were accepted at this time or later.")
    until: Time | None = Field(None, description="Of events that were accepted before this time; null: before now.")
    types: list[str] = Field([], description="Of these types, `*` allowed; empty: all.", examples=[["invoice.*"]])
    status: list[Literal["failed", "cancelled", "delivered"]] = Field(
        ["failed"], min_length=1, max_length=3, description="That came to this. What goes on, or is unknown, is left."
    )
    dry_run: bool = Field(False, strict=True, description="Only count them.")
    per_second: int | None = Field(
        None, ge=1, le=FASTEST, strict=True, description="At most so many a second; null: no limit."
    )


class RecoverAny(Recover):
    """The same, over all endpoints of the tenant or for one."""

    endpoint_id: str | None = Field(None, description="To this endpoint; null: to every one.", examples=[None])


@router.post(
    "/endpoints/{endpoint_id}/recover",
    auth=needs(Scope.OPERATE),
    response={202: JobItem, **refusals(400, 404, 413, 422)},
    summary="Recover an endpoint",
    operation_id="recover_endpoint",
)
def recover_endpoint(request: Request, response: HttpResponse, endpoint_id: str, recover: Recover) -> Status[JobItem]:
    """Deliver to this endpoint once more what failed since a time: the answer is a job. Scope: `operate`.

    Send it with `"dry_run": true` first: that job counts what this one would do. Each delivery gets one new run, with
    the same `webhook-id`; what is going on, or unknown, is left alone.
    """
    endpoint = find.endpoint(request.auth.tenant_id, endpoint_id)
    return Status(202, _job(request, response, recover, endpoint.endpoint_id))


@router.post(
    "/deliveries/recover",
    auth=needs(Scope.OPERATE),
    response={202: JobItem, **refusals(400, 413, 422)},
    summary="Recover deliveries",
    operation_id="recover_deliveries",
)
def recover_deliveries(request: Request, response: HttpResponse, recover: RecoverAny) -> Status[JobItem]:
    """As for one endpoint, over all of the tenant's, or for the one that is named. Scope: `operate`."""
    endpoint_id = None
    if recover.endpoint_id is not None:
        try:
            endpoint_id = find.endpoint(request.auth.tenant_id, recover.endpoint_id).endpoint_id
        except ApiError as unknown:
            raise invalid_field("endpoint_id", "no such endpoint") from unknown
    return Status(202, _job(request, response, recover, endpoint_id))


def _job(request: Request, response: HttpResponse, recover: Recover, endpoint_id: UUID | None) -> JobItem:
    now = jobs.now()
    until = recover.until or now
    if recover.since >= until:
        raise invalid_field("since", f"must be before until, or now: {_shown(until)}")
    try:
        columns.RULES["types"](recover.types)
    except RuleBroken as broken:
        raise invalid_field("types", str(broken)) from broken
    wanted = Filter(recover.since, min(until, now), tuple(recover.types), tuple(recover.status), endpoint_id)
    parameters: dict[str, Any] = wanted.as_json()
    with transaction.atomic():
        job = jobs.create(
            request.auth.tenant_id,
            JobKind.RECOVER,
            parameters,
            actor=request.auth.actor,
            dry_run=recover.dry_run,
            per_second=recover.per_second,
        )
    ring_for_jobs()
    return made(response, job.job_id)


def _shown(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
