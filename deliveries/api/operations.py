"""`/v1/operations`: what is known about each side effect, and a person's decision about an unknown one."""

from __future__ import annotations

from typing import Any, Literal

from django.db.models import QuerySet
from ninja import Query, Router
from pydantic import BaseModel, ConfigDict, Field

from deliveries import querying
from deliveries.api import find, pages, present, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, Error, invalid_field, not_found, refusals
from deliveries.models import Said, Scope
from deliveries.querying import NotAsked
from ledger import models as ledger
from ledger.managers import unknown
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import Decision, OperationStatus

router = Router(tags=["Operations"])

REASON_LENGTH = 2000

_WHY = {
    Reason.CONFLICT: "It has changed since the revision that you saw.",
    Reason.WRONG_STATUS: "It is not unknown, so there is nothing to resolve.",
    Reason.CLAIMED: "It is being sent at this moment; whoever sends it will settle it.",
    Reason.RUN_CANCELLED: "Its run is cancelled: nothing of it is sent again.",
    Reason.WINDOW_OVER: "The time in which the receiver promised to drop duplicates has passed.",
}

_WHY_NOT_ASKED = {
    NotAsked.NOT_UNKNOWN: "It is not unknown, so there is nothing to ask.",
    NotAsked.CLAIMED: "It is being sent at this moment; whoever sends it will settle it.",
    NotAsked.BEING_ASKED: "Its receiver is being asked about it at this moment.",
    NotAsked.NO_TOKEN: "The access token that its receiver wants is being fetched: ask again in a moment.",
}


# Where the queue keeps what is not settled, by its status.
_QUEUED: dict[str | None, dict[str, Any]] = {
    OperationStatus.UNKNOWN: {"unknown_since__isnull": False},
    OperationStatus.DISPATCHING: {"unknown_since": None, "until__isnull": False},
    OperationStatus.PREPARED: {"unknown_since": None, "until": None},
}


class OperationQuery(pages.PageQuery):
    """Filters of the list of operations."""

    status: Literal["prepared", "dispatching", "unknown", "succeeded", "failed_final", "cancelled"] | None = Field(
        None, description="Those that stand there now."
    )


class Resolve(BaseModel):
    """A person's decision."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"decision": "succeeded", "reason": "Seen in the receiver's ledger.", "revision": 2}]
        },
    )

    decision: Literal["succeeded", "failed", "retry"] = Field(
        description="It was delivered; it was not and shall not be sent again; send it again under the same id."
    )
    reason: str = Field(min_length=1, max_length=REASON_LENGTH, description="Why: kept for ever with your name.")
    revision: int = Field(ge=0, lt=2**63, description="The revision that you saw.")


class Asked(BaseModel):
    """What the receiver said, and the operation after it."""

    said: str = Field(
        description="`unknown` also when its answer was not understood, or none came: `detail` says why.",
        json_schema_extra={"enum": list(Said.values)},
        examples=[Said.PROCESSED.value],
    )
    detail: str = Field(examples=["The receiver says that it processed it."])
    operation: schemas.Operation


class ResolveConflict(Error):
    """Somebody was there first."""

    current: schemas.Operation = Field(description="The operation as it is now, with who decided what about it.")


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: schemas.OperationPage, **refusals(422)},
    summary="List operations",
    operation_id="list_operations",
)
def list_operations(request: Request, query: Query[OperationQuery]) -> schemas.OperationPage:
    """The tenant's operations, newest first: `?status=unknown` is a support engineer's work queue. Scope: `read`."""
    if query.status in _QUEUED:
        found, following = _queued(request.auth.tenant_id, query)
    else:
        rows = present.operations_of(request.auth.tenant_id)
        if query.status is not None:
            rows = rows.filter(status=query.status)
        found, following = pages.newest_first(rows, "op", "operation_key", query, pages.natural)
    return schemas.OperationPage(items=present.operation_items(found), next_cursor=following)


# Before the route that reads one: an operation's id holds slashes and would swallow `/resolve`.
@router.post(
    "/{path:operation_id}/resolve",
    auth=needs(Scope.OPERATE),
    response={200: schemas.Operation, **refusals(400, 404, 422), 409: ResolveConflict},
    summary="Resolve an unknown operation",
    operation_id="resolve_operation",
)
def resolve_operation(request: Request, operation_id: str, decision: Resolve) -> schemas.Operation:
    """Settle an unknown operation by what you found out, with the reason. Scope: `operate`.

    409 when it changed since the revision that you name: the answer shows what is there now and who decided it.
    """
    row = find.operation(request.auth.tenant_id, operation_id)
    if not decision.reason.strip() or "\0" in decision.reason:
        raise invalid_field("reason", "must say why, in text")
    outcome = unknown.resolve(
        operation_key=row.operation_key,
        actor=request.auth.actor,
        decision=Decision(decision.decision),
        reason=decision.reason,
        revision=decision.revision,
    )
    match outcome:
        case Applied():
            return _shown(request, operation_id)
        case Rejected(reason=Reason.MISSING):
            raise not_found("operation")
        case Rejected(reason=reason):
            now = _shown(request, operation_id)
            raise ApiError(
                409,
                _WHY.get(reason, f"Refused: {reason}.") + _first(now),
                extra={"reason": str(reason), "current": now.model_dump()},
            )


@router.post(
    "/{path:operation_id}/query",
    auth=needs(Scope.OPERATE),
    response={200: Asked, **refusals(404, 422), 409: ResolveConflict},
    summary="Ask the receiver about an unknown operation",
    operation_id="query_operation",
)
def query_operation(request: Request, operation_id: str) -> Asked:
    """Ask the receiver now what became of an unknown operation, and settle it by the answer. Scope: `operate`.

    It takes at most ten seconds. 409 when there is nothing to ask: the answer shows what is there now. 422 when the
    endpoint has no `query_url`.
    """
    row = find.operation(request.auth.tenant_id, operation_id)
    reply = querying.query(row.operation_key, actor=request.auth.actor)
    match reply:
        case NotAsked.MISSING:
            raise not_found("operation")
        case NotAsked.NO_QUERY_URL:
            raise invalid_field("capability.query_url", "the endpoint has none, so its receiver cannot be asked")
        case NotAsked():
            now = _shown(request, operation_id)
            detail = f"{_WHY_NOT_ASKED[reply]} It is {now.status} at revision {now.revision}."
            raise ApiError(409, detail, extra={"reason": str(reply), "current": now.model_dump()})
    return Asked(said=reply.said.value, detail=reply.detail, operation=_shown(request, operation_id))


@router.get(
    "/{path:operation_id}",
    auth=needs(Scope.READ),
    response={200: schemas.Operation, **refusals(404)},
    summary="Read an operation",
    operation_id="get_operation",
)
def get_operation(request: Request, operation_id: str) -> schemas.Operation:
    """An operation with its attempts and what people decided about it. Its id holds slashes. Scope: `read`."""
    return _shown(request, operation_id)


def _shown(request: Request, operation_id: str) -> schemas.Operation:
    return present.operations([find.operation(request.auth.tenant_id, operation_id)])[0]


def _first(now: schemas.Operation) -> str:
    if not now.resolutions:
        return f" It is {now.status} at revision {now.revision}."
    last = now.resolutions[0]
    return f" {last.actor} decided {last.decision!r} at {last.decided_at.isoformat()}: {last.reason}"


def _queued(tenant_id: str, query: OperationQuery) -> tuple[list[ledger.Operation], str | None]:
    """A page of what is not settled, found by walking the queue, which is short while the operations are not.

    The queue is only a pointer: the operation has the last word about its status, so a page may be shorter than its
    limit although there is a next one.
    """
    waiting: QuerySet[ledger.Dispatch] = ledger.Dispatch.objects.filter(tenant_id=tenant_id, **_QUEUED[query.status])
    pointers, following = pages.newest_first(waiting, "op", "operation_id", query, pages.natural)
    keys = [pointer.operation_id for pointer in pointers]
    rows = present.operations_of(tenant_id).filter(operation_key__in=keys, status=query.status)
    return list(rows.order_by("-operation_key")), following
