"""`POST /v1/endpoints/{id}/secret/rotate`: a new signing secret, while deliveries go on."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.http import HttpResponse
from ninja import Body, Router
from pydantic import BaseModel, ConfigDict, Field

from deliveries import rotation
from deliveries.api import find
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, invalid_field, not_found, refusals
from deliveries.models import Scope
from deliveries.rotation import LONGEST_OVERLAP, OVERLAP, RotationRefused
from deliveries.signing import Signature

router = Router(tags=["Endpoints"])

HOUR = timedelta(hours=1)
AT_ONCE = max(1, settings.RELAY_WEB_THREADS // 2)
"""How many rotations one process waits for at the same time: never with all of its threads. A wait may last as long as
the receiver likes to answer, up to a lease."""
_WAITING = threading.BoundedSemaphore(AT_ONCE)


class Rotate(BaseModel):
    """How to replace the signing secret."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"overlap_hours": 24}]})

    overlap_hours: int = Field(
        default=OVERLAP // HOUR,
        ge=0,
        le=LONGEST_OVERLAP // HOUR,
        description="For so long requests are signed with the former secret too. 0: it and every earlier one stop at "
        "once, as is right for a secret that leaked.",
    )
    secret: str | None = Field(
        default=None, description="`whsec_…` or `whsk_…`: your own new secret; without it one is made."
    )
    signature: Literal["v1", "v1a"] | None = Field(
        default=None, description="The kind of the new secret; without it, the kind that it was."
    )


class Rotated(BaseModel):
    """The new secret: the only time that it is shown."""

    secret: str = Field(examples=["whsec_…"])
    public_key: str | None = Field(description="`v1a`: what the receiver verifies deliveries with.")
    question_key: str | None = Field(description="`v1a`: what the receiver verifies Relay's questions with.")
    former_until: datetime | None = Field(
        description="Until then requests are signed with the former secret too; null: no longer."
    )
    settled: bool = Field(
        description="True: from now on the new secret verifies every request. False: a request that was made before, "
        "and that only the former secret verifies, may still be out."
    )


@router.post(
    "/{endpoint_id}/secret/rotate",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Rotated, **refusals(400, 404, 409, 413, 422, 429)},
    summary="Replace the signing secret",
    operation_id="rotate_secret",
)
def rotate(request: Request, response: HttpResponse, endpoint_id: str, rotate: Body[Rotate] = Rotate()) -> Rotated:  # noqa: B008
    """Replace the signing secret. It takes until every request that was made before is over: as a rule not even the
    time of one request, at most a lease and two seconds. Scope: `endpoints:write`.
    """
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    if not _WAITING.acquire(blocking=False):
        raise ApiError(
            429,
            "Other secrets are being replaced at this moment. Nothing was changed: try again.",
            headers={"Retry-After": "5"},
        )
    try:
        made = rotation.rotate(
            row.endpoint_id,
            overlap=rotate.overlap_hours * HOUR,
            secret=rotate.secret,
            signature=None if rotate.signature is None else Signature(rotate.signature),
        )
    except RotationRefused as refused:
        if refused.field is None:
            raise ApiError(409, refused.detail) from refused
        raise invalid_field(refused.field, refused.detail) from refused
    finally:
        _WAITING.release()
    if made is None:
        raise not_found("endpoint")
    response["Cache-Control"] = "no-store"
    return Rotated(
        secret=made.secret,
        public_key=made.public_key,
        question_key=made.question_key,
        former_until=made.former_until,
        settled=made.settled,
    )
