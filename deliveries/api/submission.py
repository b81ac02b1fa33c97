"""The body of `POST /v1/events`, read without changing a byte of `data`.

The whole is decoded once, with `data` left as the slice of the request that it is. Only when that is refused are the
fields looked at one by one, to name every fault instead of the first.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from django.conf import settings

from deliveries.api.errors import ApiError, FieldError, invalid, malformed
from deliveries.submit import NewEvent

KEY_HEADER = "Idempotency-Key"
TYPE_FORM = r"[A-Za-z0-9_.-]{1,128}"
TYPE_RULE = "must be 1 to 128 characters of A-Z a-z 0-9 _ . -"
SOURCE_LENGTH = 255
METADATA_ENTRIES, METADATA_KEY_LENGTH, METADATA_VALUE_LENGTH = 50, 64, 512

_TYPE = re.compile(TYPE_FORM)
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Submission(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that a producer may send."""

    type: str
    data: msgspec.Raw
    source: str | None = None
    deliver_at: _Time | None = None
    metadata: dict[str, str] | None = None


_FIELDS: dict[str, Any] = {
    "type": str,
    "data": msgspec.Raw,
    "source": str | None,
    "deliver_at": _Time | None,
    "metadata": dict[str, str] | None,
}
_REQUIRED = ("type", "data")
_EXPECTED = {
    "type": TYPE_RULE,
    "source": f"must be text of 1 to {SOURCE_LENGTH} characters",
    "deliver_at": "must be a time by RFC 3339 with a zone, as 2030-01-31T09:30:00Z, from the year 1970 to 8999",
    "metadata": "must be an object whose values are text",
}
_whole = msgspec.json.Decoder(Submission)
_loose = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(body: bytes, tenant_id: str, idempotency_key: str | None) -> NewEvent:
    """The event in `body`; `ApiError` 400, 413 or 422 when there is none that can be accepted."""
    submission = _decode(body)
    payload = bytes(submission.data)
    if len(payload) > settings.RELAY_MAX_PAYLOAD_BYTES:
        raise ApiError(
            413,
            f"data has {len(payload)} bytes; at most {settings.RELAY_MAX_PAYLOAD_BYTES} are accepted.",
            errors=[FieldError(field="data", detail="is too large")],
        )
    problems = _broken(submission)
    if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
        problems.append(FieldError(field=KEY_HEADER, detail="must be 1 to 255 printable ASCII characters"))
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
    )


def _decode(body: bytes) -> Submission:
    try:
        # The decoder does not look inside `data`, so that is where bytes which are not UTF-8 would slip through.
        if not body.isascii():
            body.decode()
        return _whole.decode(body)
    except msgspec.ValidationError as refused:
        raise _named(body) from refused
    except UnicodeDecodeError as strange:
        raise malformed(f"The body is not UTF-8: byte {strange.start}.") from strange
    except msgspec.DecodeError as strange:
        raise malformed(f"The body is not JSON: {strange}.") from strange
    except RecursionError as deep:
        raise malformed("The body is nested too deeply.") from deep


def _named(body: bytes) -> ApiError:
    """The refusal that names every field at fault in a body that is JSON."""
    try:
        fields = _loose.decode(body)
    except msgspec.ValidationError:
        return malformed("The body is JSON but not an object.")
    errors = []
    for name, raw in fields.items():
        if name == "id":
            detail = "is not accepted: Relay makes the event's id; send an Idempotency-Key header to submit only once"
        elif name not in _FIELDS:
            detail = "is not a field of an event"
        elif _fits(raw, _FIELDS[name]):
            continue
        else:
            detail = _EXPECTED[name]
        errors.append(FieldError(field=name[:100], detail=detail))
    errors += [FieldError(field=name, detail="is required") for name in _REQUIRED if name not in fields]
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
    if (source := submission.source) is not None and (not 1 <= len(source) <= SOURCE_LENGTH or _CONTROL.search(source)):
        broken.append("source")
    if submission.deliver_at is not None and not _EARLIEST <= submission.deliver_at < _LATEST:
        broken.append("deliver_at")
    errors = [FieldError(field=name, detail=_EXPECTED[name]) for name in broken]
    if submission.metadata is not None and (detail := _bad_metadata(submission.metadata)):
        errors.append(FieldError(field="metadata", detail=detail))
    return errors


def _bad_metadata(metadata: dict[str, str]) -> str:
    if len(metadata) > METADATA_ENTRIES:
        return f"has more than {METADATA_ENTRIES} entries"
    for key, value in metadata.items():
        if not 1 <= len(key) <= METADATA_KEY_LENGTH or len(value) > METADATA_VALUE_LENGTH:
            return f"keys have 1 to {METADATA_KEY_LENGTH} characters, values at most {METADATA_VALUE_LENGTH}"
        if "\0" in key or "\0" in value:
            return "holds a NUL character"
    return ""
