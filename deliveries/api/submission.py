"""Submitted events, alone or as the items of a batch, read without changing a byte of `data`.

The whole is decoded once, with `data` left as the slice of the request that it is. Only when that is refused are the
fields looked at one by one, to name every fault instead of the first.
"""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from django.conf import settings
from msgspec.structs import fields

from deliveries.api.errors import ApiError, FieldError, invalid, malformed
from deliveries.naming import CLIENT_ID_FORM, CLIENT_ID_RULE, may_be_chosen
from deliveries.rules.broken import RuleBroken
from deliveries.rules.columns import headers as check_headers
from deliveries.submit import NewEvent

KEY_HEADER = "Idempotency-Key"
TYPE_FORM = r"[A-Za-z0-9_.-]{1,128}"
TYPE_RULE = "must be 1 to 128 characters of A-Z a-z 0-9 _ . -"
KEY_RULE = "must be 1 to 255 printable ASCII characters"
SOURCE_LENGTH = 255
OURS = "relay."
"""Types that begin like this are those of Relay's own events."""
HEADERS, HEADERS_BYTES = 20, 4_096
METADATA_ENTRIES, METADATA_KEY_LENGTH, METADATA_VALUE_LENGTH = 50, 64, 512

_TYPE = re.compile(TYPE_FORM)
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_HALF_PAIR = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(?!u[dD][89a-fA-F]).)*+\\u[dD][89a-fA-F]", re.DOTALL
)
"""Text up to the first escape of a surrogate that is not one of a pair."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


BODY: dict[str, Any] = {
    "type": "object",
    "required": ["type", "data"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "pattern": f"^{TYPE_FORM}$", "description": TYPE_RULE},
        "data": {"description": "Any JSON. Receivers get these bytes as the body, exactly as they are here."},
        "id": {
            "type": ["string", "null"],
            "pattern": f"^{CLIENT_ID_FORM}$",
            "description": f"Your own id for it, which receivers see as `webhook-id`; it {CLIENT_ID_RULE}.",
        },
        "source": {"type": ["string", "null"], "minLength": 1, "maxLength": SOURCE_LENGTH},
        "deliver_at": {"type": ["string", "null"], "format": "date-time", "description": "Not before this time."},
        "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "headers": {
            "type": ["object", "null"],
            "maxProperties": HEADERS,
            "additionalProperties": {"type": "string"},
            "description": "Sent with it, where the endpoint has none of the name. Shown to whoever may read events: "
            "no place for credentials.",
        },
    },
}
"""The JSON Schema of an event as it is submitted."""


class Submission(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that a producer may send."""

    type: str
    data: msgspec.Raw
    id: str | None = None
    source: str | None = None
    deliver_at: _Time | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None


class Item(Submission):
    """What stands in a batch: what a request of its own has as a header is a field here."""

    idempotency_key: str | None = None


_Wanted = TypeVar("_Wanted")
_Kind = TypeVar("_Kind", bound=Submission)

_REQUIRED = ("type", "data")
_EXPECTED = {
    "type": TYPE_RULE,
    "id": CLIENT_ID_RULE,
    "source": f"must be text of 1 to {SOURCE_LENGTH} characters",
    "deliver_at": "must be a time by RFC 3339 with a zone, as 2030-01-31T09:30:00Z, from the year 1970 to 8999",
    "metadata": "must be an object whose values are text",
    "headers": "must be an object of header names whose values are text",
    "idempotency_key": KEY_RULE,
}
_event = msgspec.json.Decoder(Submission)
_item = msgspec.json.Decoder(Item)
_loose = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(body: bytes, tenant_id: str, idempotency_key: str | None) -> NewEvent:
    """The event in the body of a request; `ApiError` 400, 413 or 422 when there is none that can be accepted."""
    return _judged(_event_in(body, Submission, _event), tenant_id, idempotency_key, KEY_HEADER)


def read_item(text: bytes, tenant_id: str) -> NewEvent:
    """The event in an item of a batch; `ApiError` as `read`."""
    item = _event_in(text, Item, _item)
    return _judged(item, tenant_id, item.idempotency_key, "idempotency_key")


def _judged(submission: Submission, tenant_id: str, idempotency_key: str | None, key_field: str) -> NewEvent:
    payload = bytes(submission.data)
    if len(payload) > settings.RELAY_MAX_PAYLOAD_BYTES:
        raise ApiError(
            413,
            f"data has {len(payload)} bytes; at most {settings.RELAY_MAX_PAYLOAD_BYTES} are accepted.",
            errors=[FieldError(field="data", detail="is too large")],
        )
    problems = _broken(submission)
    if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
        problems.append(FieldError(field=key_field, detail=KEY_RULE))
    if problems:
        raise invalid(*problems)
    return NewEvent(
        tenant_id=tenant_id,
        type=submission.type,
        payload=payload,
        source=submission.source,
        metadata=submission.metadata,
        deliver_at=submission.deliver_at,
        idempotency_key=idempotency_key,
        client_id=submission.id,
        headers=submission.headers,
    )


def decode(text: bytes, decoder: msgspec.json.Decoder[_Wanted]) -> _Wanted:
    """What strict JSON in UTF-8 says; `ApiError` 400 with the reason, or msgspec's `ValidationError` for other JSON."""
    if text.startswith(codecs.BOM_UTF8):
        raise malformed("It begins with a byte order mark, which JSON may not (RFC 8259, section 8.1).")
    try:
        # The decoder does not look inside `data`, so that is where bytes which are not UTF-8 would slip through.
        if not text.isascii():
            text.decode()
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except UnicodeDecodeError as strange:
        raise malformed(f"It is not UTF-8: byte {strange.start}.") from strange
    except msgspec.DecodeError as strange:
        if _HALF_PAIR.match(text):
            raise malformed(
                "It holds half of a surrogate pair, as \\ud83d without \\ude00, which is no character: most receivers "
                "could not read it."
            ) from strange
        raise malformed(f"It is not JSON: {strange}.") from strange
    except RecursionError as deep:
        raise malformed("It is nested too deeply.") from deep


def _event_in(text: bytes, kind: type[_Kind], decoder: msgspec.json.Decoder[_Kind]) -> _Kind:
    try:
        return decode(text, decoder)
    except msgspec.ValidationError as refused:
        raise _named(text, kind) from refused


def _named(text: bytes, kind: type[Submission]) -> ApiError:
    """The refusal that names every field at fault in what may be an event."""
    try:
        given = decode(text, _loose)
    except msgspec.ValidationError:
        return malformed("It is JSON but not an object.")
    except ApiError as refused:
        return refused  # The field at fault stood before what is no JSON.
    known = {field.name: field.type for field in fields(kind)}
    errors = []
    for name, raw in given.items():
        if name not in known:
            detail = "is not a field of an event"
        elif _fits(raw, known[name]):
            continue
        else:
            detail = _EXPECTED[name]
        errors.append(FieldError(field=name[:100], detail=detail))
    errors += [FieldError(field=name, detail="is required") for name in _REQUIRED if name not in given]
    # Every field's last value fits, so an earlier one of the same name did not.
    return invalid(*errors) if errors else malformed("A field is given twice.")


def _fits(raw: msgspec.Raw, wanted: Any) -> bool:
    try:
        msgspec.json.decode(raw, type=wanted)
    except msgspec.ValidationError:
        return False
    return True


def _broken(submission: Submission) -> list[FieldError]:
    """The rules that types alone do not tell."""
    broken = []
    if not _TYPE.fullmatch(submission.type):
        broken.append("type")
    if submission.id is not None and not may_be_chosen(submission.id):
        broken.append("id")
    if (source := submission.source) is not None and (not 1 <= len(source) <= SOURCE_LENGTH or _CONTROL.search(source)):
        broken.append("source")
    if submission.deliver_at is not None and not _EARLIEST <= submission.deliver_at < _LATEST:
        broken.append("deliver_at")
    errors = [FieldError(field=name, detail=_EXPECTED[name]) for name in broken]
    if submission.metadata is not None and (detail := _bad_metadata(submission.metadata)):
        errors.append(FieldError(field="metadata", detail=detail))
    if submission.headers is not None and (detail := _bad_headers(submission.headers)):
        errors.append(FieldError(field="headers", detail=detail))
    if submission.type.startswith(OURS):
        errors.append(FieldError(field="type", detail=f"begins with {OURS}, which is for Relay's own events"))
    return errors


def _bad_headers(headers: dict[str, str]) -> str:
    """No message repeats a value, which may be a credential."""
    if len(headers) > HEADERS:
        return f"has more than {HEADERS} headers"
    if sum(len(name) + len(text) for name, text in headers.items()) > HEADERS_BYTES:
        return f"is longer than {HEADERS_BYTES} bytes in all"
    try:
        check_headers(headers)
    except RuleBroken as broken:
        return str(broken)
    return ""


def _bad_metadata(metadata: dict[str, str]) -> str:
    if len(metadata) > METADATA_ENTRIES:
        return f"has more than {METADATA_ENTRIES} entries"
    for key, value in metadata.items():
        if not 1 <= len(key) <= METADATA_KEY_LENGTH or len(value) > METADATA_VALUE_LENGTH:
            return f"keys have 1 to {METADATA_KEY_LENGTH} characters, values at most {METADATA_VALUE_LENGTH}"
        if "\0" in key or "\0" in value:
            return "holds a NUL character"
    return ""
