"""`POST /v1/events/{id}/replay`: an event once more to the endpoints that had it."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from ninja import Body, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import ids
from deliveries.api import find, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, invalid_field, refusals
from deliveries.endpoints import living
from deliveries.models import Scope
from deliveries.tasks import ring
from ledger.managers import task
from ledger.models import Task
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import in_transaction
from ledger.states import RunReason

router = Router(tags=["Replay and recovery"])

MOST = 1_000
"""Deliveries of one event that one request replays; a recovery takes more."""


class Replay(BaseModel):
    """Whom to send it to again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"endpoint_ids": None}]})

    endpoint_ids: list[str] | None = Field(
        default=None, max_length=MOST, description="Only these endpoints, which had it; null: all that had it."
    )


class ReplayedDelivery(BaseModel):
    """What came of one delivery."""

    delivery_id: str = Field(examples=[schemas.DELIVERY])
    endpoint_id: str = Field(examples=[schemas.ENDPOINT])
    replayed: bool
    reason: Literal["goes_on", "unsettled", "endpoint_deleted"] | None = Field(
        description="Why it was not: it still goes on; nobody knows what became of it, so resolve it first; its "
        "endpoint is gone."
    )


class Replayed(BaseModel):
    """One entry for each delivery of the event."""

    items: list[ReplayedDelivery]


@router.post(
    "/{event_id}/replay",
    auth=needs(Scope.OPERATE),
    response={202: Replayed, **refusals(400, 404, 409, 413, 422)},
    summary="Replay an event",
    operation_id="replay_event",
)
def replay_event(request: Request, event_id: str, replay: Body[Replay] = Replay()) -> Status[Replayed]:  # noqa: B008
    """Deliver it once more, in new runs under the same `webhook-id`, wherever its delivery is over. Scope: `operate`.

    An endpoint that did not want it when it was accepted has no delivery of it, and gets none by this.
    """
    tenant_id = request.auth.tenant_id
    event = find.event(tenant_id, event_id)
    if event.expunged_at is not None:
        raise _expunged()
    tasks = Task.objects.filter(event_id=event.event_id, tenant_id=tenant_id).order_by("task_id")
    if replay.endpoint_ids is not None:
        tasks = tasks.filter(endpoint_id__in=_endpoints(replay.endpoint_ids, event.event_id, tenant_id))
    found = list(tasks[: MOST + 1])
    if len(found) > MOST:
        raise invalid_field("endpoint_ids", f"name at most {MOST} endpoints: the event has more deliveries")
    named = [one.endpoint_id for one in found]
    there = set(living(tenant_id).filter(endpoint_id__in=named).values_list("endpoint_id", flat=True))
    wanted = [one.task_id for one in found if one.endpoint_id in there]
    answers = in_transaction(lambda: task.open_run(wanted, reason=RunReason.REPLAY)) if wanted else {}
    if any(isinstance(answer, Rejected) and answer.reason is Reason.CLOSED for answer in answers.values()):
        raise _expunged()  # at this very moment
    items = []
    for one in found:
        answer = answers.get(one.task_id)
        reason: Literal["goes_on", "unsettled", "endpoint_deleted"] | None = None
        if answer is None:
            reason = "endpoint_deleted"
        elif not isinstance(answer, Applied):
            reason = "unsettled" if answer.reason is Reason.UNSETTLED else "goes_on"
        items.append(
            ReplayedDelivery(
                delivery_id=ids.render(ids.DELIVERY, one.task_id),
                endpoint_id=ids.render(ids.ENDPOINT, one.endpoint_id),
                replayed=isinstance(answer, Applied),
                reason=reason,
            )
        )
    if any(item.replayed for item in items):
        ring()
    return Status(202, Replayed(items=items))


def _expunged() -> ApiError:
    return ApiError(409, "Its content was removed: there is nothing to send.", code="expunged")


def _endpoints(named: list[str], event_id: UUID, tenant_id: str) -> set[UUID]:
    """The endpoints that were named; 422 for one that has no delivery of the event, whosever it is."""
    wanted: dict[UUID, str] = {}
    for text in named:
        try:
            wanted[ids.parse(ids.ENDPOINT, text)] = text
        except ids.MalformedId as malformed:
            raise invalid_field("endpoint_ids", str(malformed)) from malformed
    had = set(
        Task.objects.filter(event_id=event_id, tenant_id=tenant_id, endpoint_id__in=list(wanted)).values_list(
            "endpoint_id", flat=True
        )
    )
    for key, text in wanted.items():
        if key not in had:
            raise invalid_field("endpoint_ids", f"{text} has no delivery of this event")
    return set(wanted)
