"""The audit of what belongs to deliveries: events, attempts and what receivers said, beside the ledger's own audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from deliveries.outcomes import EVERY_ROW, Effect
from deliveries.queries import DELIVERIES
from ledger import audit
from ledger.audit import Found, Walk

KINDS: Mapping[str, str] = {
    **audit.KINDS,
    "event_deliveries": "an event has as many deliveries as it was accepted for",
    "event_idempotency": "an idempotency key belongs to one event of its tenant",
    "event_expunged": "nothing of an expunged event's content is left",
    "answer_expunged": "nothing that was answered to an expunged event is left",
    "word_expunged": "no words of a receiver about an expunged event are left",
    "delivery_event": "the event of a delivery exists",
    "delivery_endpoint": "the endpoint of a delivery exists",
    "delivery_tenant": "a delivery, its event and its endpoint are of one tenant",
    "attempts_gapless": "every attempt that was begun, and not given back, is on record once it ended",
    "attempts_begun": "no attempt is on record that was not begun",
    "attempts_once": "an attempt is on record once",
    "attempt_epoch": "no attempt has a higher epoch than the lease",
    "attempt_epochs_rise": "the epochs of an operation's attempts do not fall",
    "succeeded_proof": "what succeeded has an accepted attempt, a receiver's word or a person's decision",
    "failed_proof": "what failed is proven not taken by every attempt, a receiver's word or a person's decision",
    "failed_though_taken": "what failed has no accepted attempt on record, unless a person gave it up",
    "doubt_forgotten": "what waits to be sent again is cleared of every send that may have been taken",
    "unknown_reason": "what is unknown has an attempt that may have been taken, or is quarantined",
    "content": "what an operation sends exists",
    "content_digest": "an operation's digest is its event's",
    "attempt_operation": "the operation of an attempt exists",
    "attempt_row": "the verdict of an attempt is a known one",
    "acknowledgement_operation": "the operation of an acknowledgement exists",
}

_PROOFS = {
    "accepted": sorted({row.classification for row in EVERY_ROW if row.effect is Effect.ACCEPTED}),
    "refused": sorted({row.classification for row in EVERY_ROW if row.effect in {Effect.NOT_TAKEN, Effect.FINAL}}),
}


def _rows(name: str, given: Mapping[str, Any]) -> list[Found]:
    return DELIVERIES[name].rows(Found, {**given, **_PROOFS, "poison_losses": settings.RELAY_POISON_LOSSES})


WALKS: tuple[Walk, ...] = (
    *audit.WALKS,
    Walk("deliveries_event", "time", lambda given: _rows("audit.events", given)),
    Walk("ledger_task", "time", lambda given: _rows("audit.deliveries", given)),
    Walk("ledger_operation", "operation", lambda given: _rows("audit.operations", given)),
    Walk("deliveries_attempt", "number", lambda given: _rows("audit.attempts", given)),
    Walk("deliveries_acknowledgement", "number", lambda given: _rows("audit.acknowledgements", given)),
)
