"""Store events' exact bytes and prepare a delivery for every endpoint that wants them, in the caller's transaction.

`deliveries.submit` commits them and wakes who delivers.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import rfc8785

from deliveries import ids
from deliveries.filters import Payload, Steps
from deliveries.models import Receives
from deliveries.queries import DELIVERIES


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to accept. `payload` is the exact bytes of a JSON value, already known to be well-formed."""

    tenant_id: str
    type: str
    payload: bytes
    source: str | None = None
    metadata: Mapping[str, Any] | None = None
    deliver_at: datetime | None = None
    idempotency_key: str | None = None
    client_id: str | None = None
    """The id that its producer chose, unique among the tenant's events."""
    headers: Mapping[str, str] | None = None
    audience: Receives = Receives.EVENTS
    only_endpoint_id: uuid.UUID | None = None
    """Whom it is for, whatever that endpoint's types and filter say; None: every endpoint that wants it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event is stored, and so are its deliveries. `replayed`: it had been before, under the same key."""

    event_id: uuid.UUID
    deliveries: int
    replayed: bool
    client_id: str | None = None

    @property
    def id(self) -> str:
        """The event's public id."""
        return self.client_id or ids.render(ids.EVENT, self.event_id)


@dataclass(frozen=True, slots=True)
class IdempotencyConflict:
    """Nothing was stored: the key, or the id, belongs to an event whose content is another."""

    event_id: uuid.UUID
    client_id: str | None = None
    by_id: bool = False
    """It was the id that was taken, not the key."""

    @property
    def id(self) -> str:
        """The public id of the event that is in the way."""
        return self.client_id or ids.render(ids.EVENT, self.event_id)


Answer = Accepted | IdempotencyConflict


FILTER_CHANGES = 5
"""How often a batch is judged anew because a filter was changed meanwhile."""

_New = tuple[NewEvent, uuid.UUID, bytes]


class FiltersChanging(RuntimeError):
    """Nothing was stored: the tenant's filters were changed again and again while they were judged by."""

    def __init__(self) -> None:
        super().__init__("the filters of the tenant's endpoints keep changing; submit again")


@dataclass(frozen=True, slots=True)
class _FilterRow:
    event_id: uuid.UUID
    endpoint_id: uuid.UUID
    filter: str
    filter_hash: str


@dataclass(frozen=True, slots=True)
class _Judged:
    event_id: uuid.UUID
    endpoint_id: uuid.UUID
    filter_hash: str
    passed: bool


@dataclass(frozen=True, slots=True)
class _AcceptRow:
    event_id: uuid.UUID
    deliveries: int


@dataclass(frozen=True, slots=True)
class _HolderRow:
    event_id: uuid.UUID
    tenant_id: str
    idempotency_key: str | None
    client_id: str | None
    digest: bytes
    deliveries: int


def digest_of(event: NewEvent) -> bytes:
    """SHA-256 over the canonical form (RFC 8785) of what was asked for: 32 bytes.

    A payload outside I-JSON (a number that no double holds, a duplicate key, a lone surrogate) has no canonical form:
    its exact bytes are taken instead.
    """
    head: dict[str, Any] = {
        "type": event.type,
        "source": event.source,
        "metadata": None if event.metadata is None else dict(event.metadata),
        "deliver_at": None if event.deliver_at is None else event.deliver_at.timestamp(),
    }
    # Named only where they were given, so that what was accepted before they existed keeps its digest.
    if event.client_id is not None:
        head["id"] = event.client_id
    if event.headers is not None:
        head["headers"] = dict(event.headers)
    if event.only_endpoint_id is not None:
        head["endpoint"] = event.only_endpoint_id.hex
    try:
        payload = b"c" + rfc8785.dumps(json.loads(event.payload, object_pairs_hook=_no_duplicates))
    except (ValueError, RecursionError):
        payload = b"x" + event.payload
    return hashlib.sha256(rfc8785.dumps(head) + b"\0" + payload).digest()


def accept(events: Sequence[NewEvent], event_ids: Sequence[uuid.UUID], digests: Sequence[bytes]) -> list[Answer]:
    """Accept a batch in the current transaction, in order, with one answer each. `FiltersChanging` stores nothing.

    The ids rise in the batch's order; `digests` are `digest_of` each. They are given, so that a transaction that is
    tried again stores the same.
    """
    every = list(zip(events, event_ids, digests, strict=True))
    stored = _store(every, [])
    missed = [one for one in every if one[1] not in stored]
    holders: dict[_Name, _HolderRow] = {}
    steps, last = Steps(), None
    for _ in range(FILTER_CHANGES):
        # An event was left out for its key, which somebody holds; or with all of its batch for a filter. Most tenants
        # have none: they are asked for only then.
        missed = [one for one in missed if one[1] not in stored]
        holders |= _holders([event for event, _, _ in missed])
        fresh = [one for one in missed if not any(name in holders for name in _names(one[0]))]
        if not fresh:
            break
        judged = _judge(fresh, steps)
        by = {(one.event_id, one.endpoint_id, one.filter_hash) for one in judged}
        if by == last:
            break  # nothing has changed, and it was not enough
        stored |= _store(fresh, judged)
        last = by
    answers: list[Answer] = []
    for event, event_id, digest in every:
        if event_id in stored:
            answers.append(Accepted(event_id, stored[event_id], replayed=False, client_id=event.client_id))
            continue
        held = [(name, holders[name]) for name in _names(event) if name in holders]
        if not held:
            raise FiltersChanging
        answers.append(_answer_of(held, digest))
    return answers


def remembered(events: Sequence[NewEvent]) -> list[Accepted | None]:
    """For each event the answer it got before, under the same key or id and with the same content; or None."""
    holders = _holders(events)
    answers: list[Accepted | None] = []
    for event in events:
        held = [(name, holders[name]) for name in _names(event) if name in holders]
        answer = _answer_of(held, digest_of(event)) if held else None
        answers.append(answer if isinstance(answer, Accepted) else None)
    return answers


_Name = tuple[str, str, str]
"""What one event alone may have: the tenant, "key" or "id", and the text."""


def _names(event: NewEvent) -> list[_Name]:
    names: list[_Name] = []
    if event.idempotency_key is not None:
        names.append((event.tenant_id, "key", event.idempotency_key))
    if event.client_id is not None:
        names.append((event.tenant_id, "id", event.client_id))
    return names


def _answer_of(held: Sequence[tuple[_Name, _HolderRow]], digest: bytes) -> Answer:
    """What to say to who submits an event of which a name is taken: it was accepted before, or is another."""
    for (_, kind, _), holder in held:
        # By two names it must be one event.
        if bytes(holder.digest) != digest or holder.event_id != held[0][1].event_id:
            return IdempotencyConflict(holder.event_id, holder.client_id, by_id=kind == "id")
    first = held[0][1]
    return Accepted(first.event_id, first.deliveries, replayed=True, client_id=first.client_id)


def _holders(events: Sequence[NewEvent]) -> dict[_Name, _HolderRow]:
    """The events that hold the names of these."""
    named = [event for event in events if _names(event)]
    if not named:
        return {}
    rows = DELIVERIES["event.holders"].rows(
        _HolderRow,
        {
            "tenant_ids": [event.tenant_id for event in named],
            "idempotency_keys": [event.idempotency_key for event in named],
            "client_ids": [event.client_id for event in named],
        },
    )
    holders: dict[_Name, _HolderRow] = {}
    for row in rows:
        if row.idempotency_key is not None:
            holders[row.tenant_id, "key", row.idempotency_key] = row
        if row.client_id is not None:
            holders[row.tenant_id, "id", row.client_id] = row
    return holders


def _store(every: Sequence[_New], judged: Sequence[_Judged]) -> dict[uuid.UUID, int]:
    """Store what can be stored: event id to its number of deliveries."""
    rows = DELIVERIES["event.accept"].rows(
        _AcceptRow,
        {
            "event_ids": [event_id for _, event_id, _ in every],
            "tenant_ids": [event.tenant_id for event, _, _ in every],
            "types": [event.type for event, _, _ in every],
            "payloads": [event.payload for event, _, _ in every],
            "digests": [digest for _, _, digest in every],
            "sources": [event.source for event, _, _ in every],
            "metadatas": [None if event.metadata is None else json.dumps(event.metadata) for event, _, _ in every],
            "deliver_ats": [event.deliver_at for event, _, _ in every],
            "idempotency_keys": [event.idempotency_key for event, _, _ in every],
            "client_ids": [event.client_id for event, _, _ in every],
            "headers": [None if event.headers is None else json.dumps(dict(event.headers)) for event, _, _ in every],
            "audiences": [event.audience.value for event, _, _ in every],
            "only_endpoint_ids": [event.only_endpoint_id for event, _, _ in every],
            "judged_event_ids": [one.event_id for one in judged],
            "judged_endpoint_ids": [one.endpoint_id for one in judged],
            "judged_filter_hashes": [one.filter_hash for one in judged],
            "judged_passed": [one.passed for one in judged],
        },
    )
    return {row.event_id: row.deliveries for row in rows}


def _judge(missed: Sequence[_New], steps: Steps) -> list[_Judged]:
    """What the filters of the endpoints that might want these events say."""
    rows = DELIVERIES["event.filters"].rows(
        _FilterRow,
        {
            "event_ids": [event_id for _, event_id, _ in missed],
            "tenant_ids": [event.tenant_id for event, _, _ in missed],
            "types": [event.type for event, _, _ in missed],
            "audiences": [event.audience.value for event, _, _ in missed],
            "only_endpoint_ids": [event.only_endpoint_id for event, _, _ in missed],
        },
    )
    asked = {row.event_id for row in rows}
    payloads = {event_id: Payload(event.payload) for event, event_id, _ in missed if event_id in asked}
    return [
        _Judged(row.event_id, row.endpoint_id, row.filter_hash, payloads[row.event_id].passes(row.filter, steps))
        for row in rows
    ]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a duplicate key")
    return members
