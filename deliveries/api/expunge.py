"""Expunging: the content of an event, or of all of a tenant's, is removed on request."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Body, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import expunging, jobs
from deliveries.api import find, present, schemas, tenants
from deliveries.api.access import Request, needs
from deliveries.api.errors import invalid_field, refusals
from deliveries.api.jobs import JobItem, made
from deliveries.api.times import Time
from deliveries.models import DEFAULT_TENANT, JobKind, Scope
from deliveries.tasks import ring, ring_for_jobs
from ledger.statements import in_transaction

router = Router(tags=["Expunge"])


class Expunge(BaseModel):
    """Why the content is removed. It cannot be undone."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "The customer asked for it, ticket 4711."}]}
    )

    reason: str = Field(min_length=1, max_length=2_000, description="It is kept, with who asked.")


class ExpungeTenant(BaseModel):
    """Which of a tenant's events lose their content. It cannot be undone."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"confirm": DEFAULT_TENANT, "reason": "The customer left.", "dry_run": True}]},
    )

    confirm: str = Field(description="The tenant's id once more, so that it is not done by mistake.")
    reason: str = Field(min_length=1, max_length=2_000, description="It is kept with the job.")
    before: Time | None = Field(None, description="Events that were accepted before this time; null: before now.")
    dry_run: bool = Field(False, strict=True, description="Only count them.")


@router.post(
    "/events/{event_id}/expunge",
    auth=needs(Scope.ADMIN),
    response={200: schemas.Event, **refusals(400, 404, 413, 422)},
    summary="Remove the content of an event",
    operation_id="expunge_event",
)
def expunge_event(request: Request, event_id: str, expunge: Body[Expunge]) -> schemas.Event:
    """Remove its payload, metadata, headers and source, and what receivers answered. Scope: `admin`.

    It cannot be undone. What still waits to be sent is cancelled; what is on the wire at this moment is not called
    back. That the event was there, to whom it was sent and what became of that stays on record; who removed its content
    and why is a job of kind `expunge`. A second time changes nothing.
    """
    tenant_id = request.auth.tenant_id
    reason = _reason(expunge.reason)
    event = find.event(tenant_id, event_id)
    removed = in_transaction(
        lambda: expunging.expunge_one(
            tenant_id, event.event_id, public_id=str(event), actor=request.auth.actor, reason=reason
        )
    )
    if removed:
        ring()  # what stood behind it in a line may go
    return schemas.Event(**present.event_fields(find.event(tenant_id, event_id)), data=None)


@router.post(
    "/tenants/{tenant_id}/expunge",
    auth=needs(Scope.ADMIN),
    response={202: JobItem, **refusals(400, 404, 413, 422)},
    summary="Remove the content of a tenant's events",
    operation_id="expunge_tenant",
)
def expunge_tenant(request: Request, response: HttpResponse, tenant_id: str, expunge: ExpungeTenant) -> Status[JobItem]:
    """The same for every event of the tenant that was accepted before a time, by a job that belongs to the tenant.
    Scope: `admin`.
    """
    tenant = tenants.found(request, tenant_id)
    if expunge.confirm != tenant.tenant_id:
        raise invalid_field("confirm", "must be the tenant's id: this cannot be undone")
    reason = _reason(expunge.reason)
    now = jobs.now()
    parameters = expunging.parameters(min(expunge.before or now, now))
    job = in_transaction(
        lambda: jobs.create(
            tenant.tenant_id,
            JobKind.EXPUNGE,
            parameters,
            actor=request.auth.actor,
            dry_run=expunge.dry_run,
            reason=reason,
        )
    )
    ring_for_jobs()
    return Status(202, made(response, job.job_id))


def _reason(given: str) -> str:
    """The reason as it is kept; 422 when it says nothing, or cannot be kept."""
    if not given.strip() or "\0" in given:
        raise invalid_field("reason", "must say why, in text")
    return given.strip()
