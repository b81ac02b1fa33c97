"""Accept events: store the exact bytes and prepare a delivery for every endpoint that wants them, in one commit."""

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
from deliveries.queries import DELIVERIES
from deliveries.tasks import ring
from ledger.statements import in_transaction


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


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event is stored, and so are its deliveries. `replayed`: it had been before, under the same key."""

    event_id: uuid.UUID
    deliveries: int
    replayed: bool


@dataclass(frozen=True, slots=True)
class IdempotencyConflict:
    """Nothing was stored: the key belongs to `event_id`, whose content is another."""

    event_id: uuid.UUID


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
    idempotency_key: str
    digest: bytes
    deliveries: int


def digest_of(event: NewEvent) -> bytes:
    """SHA-256 over the canonical form (RFC 8785) of what was asked for: 32 bytes.

    A payload outside I-JSON (a number that no double holds, a duplicate key, a lone surrogate) has no canonical form:
    its exact bytes are taken instead.
    """
    head = {
        "type": event.type,
        "source": event.source,
        "metadata": None if event.metadata is None else dict(event.metadata),
        "deliver_at": None if event.deliver_at is None else event.deliver_at.timestamp(),
    }
    try:
        payload = b"c" + rfc8785.dumps(json.loads(event.payload, object_pairs_hook=_no_duplicates))
    except (ValueError, RecursionError):
        payload = b"x" + event.payload
    return hashlib.sha256(rfc8785.dumps(head) + b"\0" + payload).digest()


def submit(events: Sequence[NewEvent]) -> list[Accepted | IdempotencyConflict]:
    """Accept a batch, in order, with one answer each.

    Guarantee: when this returns, every `Accepted` event and its deliveries are committed. Limit: when it raises, the
    whole batch is stored or nothing of it is; with an idempotency key the caller may ask again to learn which.
    """
    digests = [digest_of(event) for event in events]
    event_ids = [ids.time_ordered() for _ in events]
    answers = in_transaction(lambda: _accept(events, event_ids, digests))
    if any(isinstance(answer, Accepted) and answer.deliveries and not answer.replayed for answer in answers):
        ring()
    return answers


def _accept(
    events: Sequence[NewEvent], event_ids: Sequence[uuid.UUID], digests: Sequence[bytes]
) -> list[Accepted | IdempotencyConflict]:
    every = list(zip(events, event_ids, digests, strict=True))
    stored = _store(every, [])
    missed = [one for one in every if one[1] not in stored]
    holders: dict[tuple[str, str | None], _HolderRow] = {}
    steps, last = Steps(), None
    for _ in range(FILTER_CHANGES):
        # An event was left out for its key, which somebody holds; or with all of its batch for a filter. Most tenants
        # have none: they are asked for only then.
        missed = [one for one in missed if one[1] not in stored]
        holders |= _holders(missed)
        fresh = [one for one in missed if _key(one[0]) not in holders]
        if not fresh:
            break
        judged = _judge(fresh, steps)
        by = {(one.event_id, one.endpoint_id, one.filter_hash) for one in judged}
        if by == last:
            break  # nothing has changed, and it was not enough
        stored |= _store(fresh, judged)
        last = by
    answers: list[Accepted | IdempotencyConflict] = []
    for event, event_id, digest in every:
        if event_id in stored:
            answers.append(Accepted(event_id, stored[event_id], replayed=False))
            continue
        holder = holders.get(_key(event))
        if holder is None:
            raise FiltersChanging
        if bytes(holder.digest) == digest:
            answers.append(Accepted(holder.event_id, holder.deliveries, replayed=True))
        else:
            answers.append(IdempotencyConflict(holder.event_id))
    return answers


def _key(event: NewEvent) -> tuple[str, str | None]:
    return event.tenant_id, event.idempotency_key


def _holders(missed: Sequence[_New]) -> dict[tuple[str, str | None], _HolderRow]:
    """The events that hold the idempotency keys of these."""
    keyed = [event for event, _, _ in missed if event.idempotency_key is not None]
    if not keyed:
        return {}
    rows = DELIVERIES["event.holders"].rows(
        _HolderRow,
        {
            "tenant_ids": [event.tenant_id for event in keyed],
            "idempotency_keys": [event.idempotency_key for event in keyed],
        },
    )
    return {(row.tenant_id, row.idempotency_key): row for row in rows}


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
