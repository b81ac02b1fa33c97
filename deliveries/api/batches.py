"""`POST /v1/events/batch`: up to a thousand events in one request, each with an answer of its own."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Literal

import msgspec
from django.conf import settings
from django.http import HttpResponse, UnreadablePostError
from ninja import Router
from pydantic import BaseModel, Field

from deliveries.api import schemas, submission
from deliveries.api.access import Request, needs
from deliveries.api.errors import ApiError, Error, invalid_field, malformed, refusals
from deliveries.api.submitting import announced, take
from deliveries.models import Scope
from deliveries.submit import Accepted, NewEvent

router = Router(tags=["Events"])

MOST = 1_000
LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})

_NONE = msgspec.Raw()
# A list would be built whole before its length is judged, and a body can hold millions of items. This one ends at once.
_Array = msgspec.defstruct(
    "_Array", [(f"item_{n}", msgspec.Raw, _NONE) for n in range(MOST)], array_like=True, forbid_unknown_fields=True
)
_array = msgspec.json.Decoder(_Array)
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
"""A line that is not blank, from its first character on."""


class TakenItem(BaseModel):
    """An item that is stored, and will not be lost any more."""

    index: int = Field(description="Its place in the batch, from 0.", examples=[0])
    status: Literal[202]
    id: str = Field(examples=[schemas.EVENT])
    deliveries: int = Field(description="How many endpoints want it.", examples=[1])
    replayed: bool = Field(description="It had been accepted before, under the same key or id.")


class RefusedItem(BaseModel):
    """An item of which nothing is stored."""

    index: int = Field(examples=[1])
    status: int = Field(description="What it would have got alone.", examples=[422])
    error: Error


class BatchResult(BaseModel):
    """One answer for each item, in their order."""

    accepted: int = Field(description="How many are stored.", examples=[1])
    refused: int = Field(description="How many are not.", examples=[0])
    items: list[TakenItem | RefusedItem]


_ITEM: dict[str, Any] = {
    **submission.BODY,
    "properties": {
        **submission.BODY["properties"],
        "idempotency_key": {"type": ["string", "null"], "description": submission.KEY_RULE},
    },
}
_EXAMPLE = [
    {"type": "invoice.paid", "data": {"invoice": "in_1042", "total": 1290}, "idempotency_key": "in_1042-paid"},
    {"type": "invoice.voided", "data": {"invoice": "in_1043"}, "id": "in_1043-voided"},
]
_DOCUMENTATION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
                    "minItems": 1,
                    "description": f"At most {MOST:,}.",
                    # Whatever else stands there is refused in its place, and not with all of the batch.
                    "items": {"anyOf": [_ITEM, {}]},
                },
                "examples": {"two events": {"value": _EXAMPLE}},
            },
            # One event a line; empty lines do not count. JSON Schema has no word for lines, so there is no schema.
            "application/x-ndjson": {
                "examples": {
                    "two lines": {"value": "".join(f"{msgspec.json.encode(one).decode()}\n" for one in _EXAMPLE)}
                },
            },
        },
    }
}


@router.post(
    "/batch",
    auth=needs(Scope.EVENTS_WRITE),
    response={200: BatchResult, **refusals(400, 411, 413, 422)},
    summary="Submit many events",
    operation_id="submit_events",
    openapi_extra=_DOCUMENTATION,
)
def submit_events(request: Request) -> HttpResponse:
    """Accept up to 1,000 events, as a JSON array or one a line, and answer each in its place. Scope: `events:write`.

    None is lost for another's fault: what is good is stored, all of it in one commit, and what is not says why. So the
    answer is 200 also when every item was refused. An item may have an `idempotency_key`, which works as the header
    `Idempotency-Key` of a single event; give one to each, and a batch whose answer was lost can be sent again. A line
    that is no JSON is refused alone; an array that is none is refused whole, with 400.
    """
    texts = _texts(_body(request), request.content_type or "")
    answers: list[dict[str, Any] | None] = [None] * len(texts)
    good: list[tuple[int, NewEvent]] = []
    for index, text in enumerate(texts):
        try:
            good.append((index, submission.read_item(text, request.auth.tenant_id)))
        except ApiError as refused:
            answers[index] = _answered(index, refused)
    outcomes = take(request.auth.tenant_id, [event for _, event in good], "idempotency_key")
    for (index, _), outcome in zip(good, outcomes, strict=True):
        answers[index] = _answered(index, outcome)
    accepted = sum(isinstance(outcome, Accepted) for outcome in outcomes)
    return HttpResponse(
        msgspec.json.encode({"accepted": accepted, "refused": len(texts) - accepted, "items": answers}),
        content_type="application/json; charset=utf-8",
    )


def _body(request: Request) -> bytes:
    """The body, which may be larger than Django would read; what is too large is refused before it is read."""
    length = announced(request, settings.RELAY_MAX_BATCH_BYTES)
    try:
        body = request.read(length)
    except OSError as cut:
        raise UnreadablePostError(*cut.args) from cut
    if len(body) < length:
        raise malformed("The body ended before its Content-Length.")
    return body


def _texts(body: bytes, content_type: str) -> list[bytes]:
    """The items, as they stand in the body."""
    texts = _lines(body) if content_type in LINES else _elements(body)
    if not texts:
        raise invalid_field("items", "there are none")
    if len(texts) > MOST:
        raise _too_many()
    return texts


def _lines(body: bytes) -> list[bytes]:
    """The lines that are not blank; one more than may be, when there are more."""
    return [line[0] for line in islice(_LINE.finditer(body), MOST + 1)]


def _elements(body: bytes) -> list[bytes]:
    """The elements of the array."""
    try:
        return [bytes(raw) for raw in msgspec.structs.astuple(submission.decode(body, _array)) if raw is not _NONE]
    except msgspec.ValidationError as refused:
        if body.lstrip(b" \t\r\n").startswith(b"["):
            raise _too_many() from refused
        raise malformed(
            "It is JSON but not an array; for one event a line say Content-Type: application/x-ndjson."
        ) from refused


def _too_many() -> ApiError:
    return ApiError(413, f"The batch has more than {MOST} items. Send it in several.")


def _answered(index: int, outcome: Accepted | ApiError) -> dict[str, Any]:
    if isinstance(outcome, ApiError):
        return {"index": index, "status": outcome.status, "error": outcome.content()}
    return {
        "index": index,
        "status": 202,
        "id": outcome.id,
        "deliveries": outcome.deliveries,
        "replayed": outcome.replayed,
    }
