"""`/v1/acknowledgements`: what a receiver says became of an operation, after its answer or instead of one."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from django.db import connection
from ninja import Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import acknowledgements, expunging
from deliveries.acknowledgements import Said, Source
from deliveries.api.errors import ApiError, Error, invalid_field
from deliveries.api.receivers import MOST_BYTES, EndpointSignature, Receiver, SignedRequest
from deliveries.api.schemas import OPERATION, RUN
from deliveries.models import Acknowledgement
from ledger.models import Operation
from ledger.outcome import Applied
from ledger.statements import in_transaction
from ledger.states import OperationStatus

router = Router(tags=["Acknowledgements"])

REMOTE_ID_LENGTH = 255
DETAIL_LENGTH = 2_000
MOST_WORDS = 20
"""How many acknowledgements of one operation are kept, since they are kept for ever."""

_KEEPING = 0x4B656570  # the first half of the advisory lock's key: "Keep"

_HEADERS = [
    {
        "in": "header",
        "name": "webhook-id",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "description": "Your own id of this message, without a full stop, and not like Relay's own (`evt_…`, `qry_…`). "
        "The same again is recorded once.",
    },
    {
        "in": "header",
        "name": "webhook-timestamp",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{1,12}$"},
        "description": "Unix seconds, at most 5 minutes off.",
    },
]


class AcknowledgementIn(BaseModel):
    """What became of an operation."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"operation": OPERATION, "run": RUN, "outcome": "processed", "remote_id": "in_1042"}]
        },
    )

    operation: str = Field(description="As it came in `idempotency-key`.")
    run: str = Field(description="As it came in `relay-run-id`.", json_schema_extra={"format": "uuid"})
    outcome: Literal["processed", "rejected"] = Field(
        description="It was taken and acted upon; it was not, and never will be."
    )
    remote_id: str | None = Field(None, max_length=REMOTE_ID_LENGTH, description="What you call what came of it.")
    detail: str | None = Field(None, max_length=DETAIL_LENGTH, description="Anything that a person should read.")


class AcknowledgementMade(BaseModel):
    """Your word is on record. What it led to."""

    operation: str = Field(examples=[OPERATION])
    status: str = Field(description="Where the operation stands now.", examples=["succeeded"])
    moved: bool = Field(description="Whether this word settled it.")
    detail: str = Field(examples=["This settled it: it is succeeded now."])


@router.post(
    "",
    auth=EndpointSignature(),
    response={202: AcknowledgementMade, **dict.fromkeys((400, 401, 409, 411, 413, 422, 429, 503), Error)},
    summary="Acknowledge an operation",
    operation_id="acknowledge_operation",
    openapi_extra={"parameters": _HEADERS},
    description=f"""For receivers: say what became of an operation, later than your answer or instead of one. No key:
sign the exact body as Standard Webhooks does, with the key HMAC-SHA256(your endpoint's secret, "relay acknowledgement")
and not with the secret itself, which only signs what Relay sends. At most {MOST_BYTES} bytes.

Your word is recorded whatever the operation is, and moves it only while it is unknown: *processed* to succeeded,
*rejected* to failed. *Processed* also ends what was sent and waits to be sent again. While it is being
sent it waits for that to end. What is settled stays as it is. A wrong signature, an operation that does not exist and
somebody else's get the same 401. {MOST_WORDS} words are kept about one
operation; further ones get 429 with the code `too_many_acknowledgements`, at any time.""",
)
def acknowledge_operation(request: SignedRequest, acknowledgement: AcknowledgementIn) -> Status[AcknowledgementMade]:
    """Record a receiver's word and converge by it."""
    receiver = request.auth
    _check_run(receiver, acknowledgement.run)
    said = Said(acknowledgement.outcome)
    recorded = in_transaction(lambda: _record(receiver, acknowledgement))
    if not recorded:
        _check_repeated(receiver, acknowledgement)
    moved = isinstance(acknowledgements.converge([receiver.operation_key]).get(receiver.operation_key), Applied)
    now = Operation.objects.get(operation_key=receiver.operation_key)
    return Status(
        202,
        AcknowledgementMade(
            operation=receiver.operation_id, status=now.status, moved=moved, detail=_told(now, said, moved=moved)
        ),
    )


def _record(receiver: Receiver, given: AcknowledgementIn) -> bool:
    """Keep a word, unless this message is on record (False) or as many words as are kept (429)."""
    with connection.cursor() as cursor:
        # One at a time about one operation, so that what is counted is what there is when the word is written.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashint8(%s))", (_KEEPING, receiver.operation_key))
    kept = Acknowledgement.objects.filter(operation_key=receiver.operation_key, source=Source.ACKNOWLEDGEMENT)
    if kept.count() >= MOST_WORDS and not kept.filter(message_id=receiver.message_id).exists():
        raise ApiError(
            429,
            f"{MOST_WORDS} acknowledgements of this operation are on record, and no more are kept; those there count.",
            code="too_many_acknowledgements",
        )
    return acknowledgements.record(
        operation_key=receiver.operation_key,
        run_id=receiver.run_id,
        source=Source.ACKNOWLEDGEMENT,
        said=Said(given.outcome),
        remote_id=given.remote_id,
        detail=given.detail or "",
        actor=receiver.actor,
        status=None,
        message_id=receiver.message_id,
    )


def _check_run(receiver: Receiver, named: str) -> None:
    try:
        same = uuid.UUID(named) == receiver.run_id
    except ValueError as strange:
        raise invalid_field("run", "must be a UUID, as in the relay-run-id header") from strange
    if not same:
        raise invalid_field("run", "is not the run of this operation: a word about one run says nothing about another")


def _check_repeated(receiver: Receiver, again: AcknowledgementIn) -> None:
    """409 when a message that is on record comes with other content: it would be lost without a word."""
    first: Any = Acknowledgement.objects.get(operation_key=receiver.operation_key, message_id=receiver.message_id)
    kept = (first.said, first.remote_id)
    given = (again.outcome, None if again.remote_id is None else acknowledgements.storable(again.remote_id))
    # Words that were removed on request cannot be compared any more.
    reworded = first.detail != acknowledgements.storable(again.detail or "") and not _expunged(receiver.operation_key)
    if kept != given or reworded:
        raise ApiError(
            409,
            f"This webhook-id was used for another word about this operation ({first.said}); give each its own.",
            code="message_conflict",
        )


def _expunged(operation_key: int) -> bool:
    return bool(expunging.is_expunged([Operation.objects.get(operation_key=operation_key).request_ref]))


def _told(now: Operation, said: Said, *, moved: bool) -> str:
    """What came of it, in a sentence."""
    if moved:
        return f"This settled it: it is {now.status} now."
    match now.status:
        case OperationStatus.PREPARED:
            return (
                "Recorded; it moves nothing: nothing of it can have been taken from us, because it was not sent yet "
                "or every send is proven not to have arrived."
            )
        case OperationStatus.DISPATCHING:
            return "Recorded: it is being sent at this moment. If its outcome stays unknown, this settles it."
        case OperationStatus.UNKNOWN if now.dispatch_owner is not None:
            return "Recorded: it is being sent again at this moment. If it stays unknown, this settles it."
        case OperationStatus.UNKNOWN:
            return "Recorded. It is unknown; the reconciler looks at what is on record."
        case OperationStatus.SUCCEEDED if said is Said.PROCESSED:
            return "It had succeeded already."
        case _:
            return f"Recorded as evidence; it moves nothing: the operation is {now.status} and stays so."
