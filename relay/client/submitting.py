"""Events on their way to Relay: what may be said of one, its bytes, and batches of any length."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from relay.client.errors import Invalid
from relay.client.http import Http
from relay.client.results import BatchResult, Sent

BATCH_EVENTS = 1_000
"""As many as Relay takes at once."""
BATCH_BYTES = 8 * 1_048_576
"""Well below what Relay takes at once unless it was told otherwise."""


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    """An event to submit. `data` is anything that JSON can say; bytes are JSON already, and go out as they are."""

    type: str
    data: Any
    id: str | None = None
    idempotency_key: str | None = None
    source: str | None = None
    metadata: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    deliver_at: datetime | None = None

    def named(self) -> NewEvent:
        """With an idempotency key, unless it has one or an id: so that it is stored once, however often it is sent."""
        return self if self.id or self.idempotency_key else replace(self, idempotency_key=new_key())

    def body(self, *, with_key: bool) -> bytes:
        """Its JSON. ValueError for data that JSON cannot say, and for a time without a zone."""
        if self.deliver_at is not None and self.deliver_at.tzinfo is None:
            raise ValueError("deliver_at must have a zone")
        fields: dict[str, Any] = {
            "type": self.type,
            "id": self.id,
            "source": self.source,
            "metadata": None if self.metadata is None else dict(self.metadata),
            "headers": None if self.headers is None else dict(self.headers),
            "deliver_at": self.deliver_at,
            "idempotency_key": self.idempotency_key if with_key else None,
        }
        said = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode({**said, "data": msgspec.Raw(payload(self.data))})


def new_key() -> str:
    """An idempotency key that nobody had before."""
    return f"client-{uuid.uuid4().hex}"


def payload(data: Any) -> bytes:
    """The bytes of `data`; ValueError for what JSON cannot say (NaN, a lone surrogate), and for bytes that are none."""
    if isinstance(data, bytes | bytearray | memoryview):
        raw = bytes(data)
        try:
            raw.decode()
            msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strange:
            raise ValueError(f"data is not JSON in UTF-8: {strange}") from strange
        return raw.strip(b" \t\r\n")
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as strange:
        raise ValueError(f"data cannot be said in JSON: {strange}") from strange


def send_one(http: Http, event: NewEvent) -> Sent:
    """Submit an event. It is repeated under its id or key, so it is stored once."""
    event = event.named()
    headers = {} if event.idempotency_key is None else {"Idempotency-Key": event.idempotency_key}
    answer = http.call("POST", "/v1/events", body=event.body(with_key=False), headers=headers, repeatable=True)
    accepted = answer.read(Sent)
    return replace(accepted, replayed=answer.headers.get("Idempotent-Replayed") == "true")


@dataclass(frozen=True, slots=True)
class _Page:
    items: list[BatchResult]


def send_many(http: Http, events: Iterable[NewEvent | Mapping[str, Any]]) -> Iterator[list[BatchResult]]:
    """The results of each batch, in the order of the events, as soon as it is answered."""
    start = 0
    for chunk in _chunks(events):
        results = _send_chunk(http, chunk)
        yield [replace(result, index=start + result.index) for result in results]
        start += len(chunk)


def _chunks(events: Iterable[NewEvent | Mapping[str, Any]]) -> Iterator[list[bytes]]:
    """Bodies in batches that are neither too many nor too large."""
    chunk: list[bytes] = []
    size = 0
    for given in events:
        event = given if isinstance(given, NewEvent) else NewEvent(**given)
        body = event.named().body(with_key=True)
        if chunk and (len(chunk) == BATCH_EVENTS or size + len(body) > BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(body)
        size += len(body) + 1
    if chunk:
        yield chunk


def _send_chunk(http: Http, bodies: list[bytes]) -> list[BatchResult]:
    # A line feed is allowed between the tokens of JSON, and would end a line of NDJSON.
    if any(b"\n" in body or b"\r" in body for body in bodies):
        whole, kind = b"[%b]" % b",".join(bodies), "application/json"
    else:
        whole, kind = b"\n".join(bodies) + b"\n", "application/x-ndjson"
    try:
        answer = http.call(
            "POST", "/v1/events/batch", body=whole, headers={"Content-Type": kind}, repeatable=True
        )  # fmt: skip
    except Invalid as refused:
        if refused.status != 413 or len(bodies) == 1:
            raise
        half = len(bodies) // 2
        second = _send_chunk(http, bodies[half:]) if (first := _send_chunk(http, bodies[:half])) else []
        return first + [replace(result, index=half + result.index) for result in second]
    return sorted(answer.read(_Page).items, key=lambda result: result.index)
