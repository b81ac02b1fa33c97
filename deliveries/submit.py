"""Accept events for good: commit them with their deliveries, and wake who delivers."""

from __future__ import annotations

from collections.abc import Sequence

from deliveries import ids
from deliveries.accepting import (
    Accepted,
    Answer,
    FiltersChanging,
    IdempotencyConflict,
    NewEvent,
    accept,
    digest_of,
    remembered,
)
from deliveries.tasks import ring
from ledger.statements import in_transaction

__all__ = [
    "Accepted",
    "Answer",
    "FiltersChanging",
    "IdempotencyConflict",
    "NewEvent",
    "digest_of",
    "remembered",
    "submit",
]


def submit(events: Sequence[NewEvent]) -> list[Answer]:
    """Accept a batch, in order, with one answer each.

    Guarantee: when this returns, every `Accepted` event and its deliveries are committed. Limit: when it raises, the
    whole batch is stored or nothing of it is; with an idempotency key or an id the caller may ask again to learn which.
    """
    digests = [digest_of(event) for event in events]
    event_ids = [ids.time_ordered() for _ in events]
    answers = in_transaction(lambda: accept(events, event_ids, digests))
    if any(isinstance(answer, Accepted) and answer.deliveries and not answer.replayed for answer in answers):
        ring()
    return answers
