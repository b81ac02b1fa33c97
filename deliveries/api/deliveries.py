"""`/v1/deliveries`: one event going to one endpoint, its whole life, and what the control plane may do about it."""

from __future__ import annotations

from datetime import timedelta

from ninja import Query, Router, Status
from pydantic import Field

from deliveries import acknowledgements, ids, lines
from deliveries.api import find, pages, present, schemas, statuses
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, Error, refusals
from deliveries.api.times import Time
from deliveries.endpoints import living
from deliveries.models import Event, Scope
from deliveries.tasks import ring
from ledger.managers import run, task
from ledger.models import Operation, Task
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import in_transaction
from ledger.states import RunReason

router = Router(tags=["Deliveries"])

CLOCKS_APART = timedelta(seconds=1)
"""A delivery's key and its time are read from the database's clock, one after the other."""

_RESOLVE_FIRST = (
    "Nobody knows whether it was taken. Resolve it first: a new run could make the same thing happen twice."
)
_SETTLED = "Cancelled; what was sent keeps its own truth."
_CANCELLED: dict[str, str] = {
    "sending": "Cancelled; it is being sent at this moment, and what was sent keeps its own truth.",
    "unknown": "Cancelled; it was sent, nobody knows whether it was taken, and what was sent keeps its own truth.",
    "cancelled": "Cancelled; nothing of it is on record as taken, and nothing more is sent.",
}


class DeliveryQuery(pages.PageQuery):
    """Filters of the list of deliveries."""

    event_id: str | None = Field(None, description="Of this event.")
    endpoint_id: str | None = Field(None, description="To this endpoint.")
    status: schemas.DeliveryStatus | None = Field(None, description=f"That stand there. {statuses.SHORT_PAGES}")
    since: Time | None = Field(None, description="Of events that were accepted at this time or later.")
    until: Time | None = Field(None, description="Of events that were accepted before this time.")


class Cancelled(schemas.Delivery):
    """A delivery that was cancelled, and what that means for what was sent."""

    detail: str = Field(examples=["Cancelled; nothing of it is on record as taken, and nothing more is sent."])


class DeliveryConflict(Error):
    """What was asked does not agree with where the delivery stands."""

    current: schemas.Delivery = Field(description="The delivery as it is now.")


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: schemas.DeliveryPage, **refusals(422)},
    summary="List deliveries",
    operation_id="list_deliveries",
)
def list_deliveries(request: Request, query: Query[DeliveryQuery]) -> schemas.DeliveryPage:
    """The tenant's deliveries, newest first. Scope: `read`."""
    rows = Task.objects.filter(tenant_id=request.auth.tenant_id)
    if query.event_id is not None:
        rows = rows.filter(event_id=find.filtered_event(request.auth.tenant_id, query.event_id))
    if query.endpoint_id is not None:
        rows = rows.filter(endpoint_id=pages.filter_id("endpoint_id", ids.ENDPOINT, query.endpoint_id))
    # The bounds on the key let the index stop where the times end; those on created_at are the exact ones.
    if query.since is not None:
        rows = rows.filter(created_at__gte=query.since, task_id__gte=ids.first_at(query.since - CLOCKS_APART))
    if query.until is not None:
        rows = rows.filter(created_at__lt=query.until, task_id__lt=ids.first_at(query.until + CLOCKS_APART))
    if query.status is None:
        found, following = pages.newest_first(rows, "dlv", "task_id", query)
    else:
        keys, following = pages.sifted(rows, "dlv", "task_id", query, statuses.of_delivery(query.status))
        found = list(rows.filter(task_id__in=keys).order_by("-task_id"))
    shown = present.deliveries(found)
    items = [schemas.DeliveryItem(**one) for one in shown if query.status in {None, one["status"]}]
    return schemas.DeliveryPage(items=items, next_cursor=following)


@router.get(
    "/{delivery_id}",
    auth=needs(Scope.READ),
    response={200: schemas.Delivery, **refusals(404)},
    summary="Read a delivery",
    operation_id="get_delivery",
)
def get_delivery(request: Request, delivery_id: str) -> schemas.Delivery:
    """A delivery with its runs, operations, attempts, takeovers and fenced writes. Scope: `read`."""
    return present.whole_delivery(find.delivery(request.auth.tenant_id, delivery_id))


@router.post(
    "/{delivery_id}/cancel",
    auth=needs(Scope.OPERATE),
    response={200: Cancelled, **refusals(404), 409: DeliveryConflict},
    summary="Cancel a delivery",
    operation_id="cancel_delivery",
)
def cancel_delivery(request: Request, delivery_id: str) -> Cancelled:
    """End the delivery's active run: nothing more of it is sent. What was sent keeps its own truth. Scope: `operate`.

    409 when it is over already.
    """
    found = find.delivery(request.auth.tenant_id, delivery_id)
    # What is known to have been taken is not withdrawn.
    keys = Operation.objects.filter(run_id=found.active_run_id).values_list("operation_key", flat=True)
    acknowledgements.converge(list(keys))
    answer = in_transaction(lambda: run.cancel([found.active_run_id]))[found.active_run_id]
    if isinstance(answer, Applied) and found.in_line:
        lines.leave_cancelled(found.task_id)
        ring()
    now = present.whole_delivery(find.delivery(request.auth.tenant_id, delivery_id))
    match answer:
        case Applied():
            return Cancelled(**now.model_dump(), detail=_CANCELLED.get(now.status, _SETTLED))
        case Rejected(reason=reason):
            raise _conflict(
                f"It is over: its run is {answer.seen_status} and the delivery is {now.status}.", reason, now
            )


@router.post(
    "/{delivery_id}/replay",
    auth=needs(Scope.OPERATE),
    response={202: schemas.Delivery, **refusals(404), 409: DeliveryConflict},
    summary="Replay a delivery",
    operation_id="replay_delivery",
)
def replay_delivery(request: Request, delivery_id: str) -> Status[schemas.Delivery]:
    """Deliver it once more, in a new run: the same `webhook-id`, a new operation. Scope: `operate`.

    409 while it goes on; 409 with the code `unsettled` while nobody knows what became of an operation: a new one could
    make the same thing happen twice.
    """
    found = find.delivery(request.auth.tenant_id, delivery_id)
    if Event.objects.filter(event_id=found.event_id).exclude(expunged_at=None).exists():
        raise _expunged(present.whole_delivery(found))
    if not living(found.tenant_id).filter(endpoint_id=found.endpoint_id).exists():
        raise _conflict("Its endpoint was deleted.", Reason.MISSING, present.whole_delivery(found))
    answer = in_transaction(lambda: task.open_run([found.task_id], reason=RunReason.REPLAY))[found.task_id]
    if isinstance(answer, Applied):
        ring()
    now = present.whole_delivery(find.delivery(request.auth.tenant_id, delivery_id))
    match answer:
        case Applied():
            return Status(202, now)
        case Rejected(reason=Reason.CLOSED):
            raise _expunged(now)  # at this very moment
        case Rejected(reason=Reason.UNSETTLED, seen_status="unknown"):
            raise _conflict(_RESOLVE_FIRST, Reason.UNSETTLED, now)
        case Rejected(reason=reason) if now.status == "unknown":
            raise _conflict(_RESOLVE_FIRST, Reason.UNSETTLED, now)
        case Rejected(reason=reason):
            raise _conflict(f"It goes on: it is {now.status}.", reason, now)


def _expunged(now: schemas.Delivery) -> ApiError:
    return ApiError(
        409,
        "The content of its event was removed: there is nothing to send.",
        code="expunged",
        extra={"reason": "expunged", "current": now.model_dump()},
    )


def _conflict(detail: str, reason: Reason, now: schemas.Delivery) -> ApiError:
    code = "unsettled" if reason is Reason.UNSETTLED else "conflict"
    return ApiError(409, detail, code=code, extra={"reason": str(reason), "current": now.model_dump()})
