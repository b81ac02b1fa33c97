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
    stored = {
        row.event_id: row.deliveries
        for row in DELIVERIES["event.accept"].rows(
            _AcceptRow,
            {
                "event_ids": list(event_ids),
                "tenant_ids": [event.tenant_id for event in events],
                "types": [event.type for event in events],
                "payloads": [event.payload for event in events],
                "digests": list(digests),
                "sources": [event.source for event in events],
                "metadatas": [None if event.metadata is None else json.dumps(event.metadata) for event in events],
                "deliver_ats": [event.deliver_at for event in events],
                "idempotency_keys": [event.idempotency_key for event in events],
                "passed_event_ids": [],
                "passed_endpoint_ids": [],
            },
        )
    }
    holders: dict[tuple[str, str], _HolderRow] = {}
    if len(stored) < len(events):
        missed = [event for event, event_id in zip(events, event_ids, strict=True) if event_id not in stored]
        rows = DELIVERIES["event.holders"].rows(
            _HolderRow,
            {
                "tenant_ids": [event.tenant_id for event in missed],
                "idempotency_keys": [event.idempotency_key for event in missed],
            },
        )
        holders = {(row.tenant_id, row.idempotency_key): row for row in rows}
    answers: list[Accepted | IdempotencyConflict] = []
    for event, event_id, digest in zip(events, event_ids, digests, strict=True):
        if event_id in stored:
            answers.append(Accepted(event_id, stored[event_id], replayed=False))
            continue
        assert event.idempotency_key is not None, "only a taken idempotency key keeps an event out"
        holder = holders[event.tenant_id, event.idempotency_key]
        if bytes(holder.digest) == digest:
            answers.append(Accepted(holder.event_id, holder.deliveries, replayed=True))
        else:
            answers.append(IdempotencyConflict(holder.event_id))
    return answers


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a duplicate key")
    return members
