"""A delivery moved aside out of the line of its ordered endpoint."""

from __future__ import annotations

from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from deliveries import lines
from deliveries.api import find, present, schemas
from deliveries.api.access import Request, needs
from deliveries.api.deliveries import DeliveryConflict
from deliveries.api.errors import ApiError, invalid_field, refusals
from deliveries.api.operations import REASON_LENGTH
from deliveries.models import Scope
from deliveries.tasks import ring
from ledger.outcome import Applied, Reason, Rejected

router = Router(tags=["Deliveries"])

_WHY = {
    Reason.NOT_IN_LINE: "It stands in no line.",
    Reason.WRONG_STATUS: "It is settled, and holds nobody up.",
    Reason.CLAIMED: "It is being sent at this moment; the next in line would overtake it.",
}


class MoveAside(BaseModel):
    """Why a delivery shall not hold its line any longer."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"reason": "The receiver knows it is missing."}]}
    )

    reason: str = Field(min_length=1, max_length=REASON_LENGTH, description="Why: kept for ever with your name.")


@router.post(
    "/{delivery_id}/move-aside",
    auth=needs(Scope.OPERATE),
    response={200: schemas.Delivery, **refusals(400, 404, 422), 409: DeliveryConflict},
    summary="Move a delivery aside",
    operation_id="move_delivery_aside",
)
def move_delivery_aside(request: Request, delivery_id: str, why: MoveAside) -> schemas.Delivery:
    """Let a delivery to an ordered endpoint leave its line: those behind it wait for it no longer. Scope: `operate`.

    It is sent when it is due, out of order, keeps its own truth, and never comes back into the line.

    409 when it stands in no line, is settled, or is being sent at this moment.
    """
    found = find.delivery(request.auth.tenant_id, delivery_id)
    if not why.reason.strip() or "\0" in why.reason:
        raise invalid_field("reason", "must say why, in text")
    answer = lines.leave(found.task_id, actor=request.auth.actor, reason=why.reason)
    if isinstance(answer, Applied):
        ring()
    now = present.whole_delivery(find.delivery(request.auth.tenant_id, delivery_id))
    match answer:
        case Applied():
            return now
        case Rejected(reason=reason):
            raise ApiError(
                409,
                f"{_WHY.get(reason, f'Refused: {reason}.')} It is {now.status}.",
                extra={"reason": str(reason), "current": now.model_dump()},
            )
