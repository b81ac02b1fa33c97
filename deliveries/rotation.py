"""Replacing the signing secret of an endpoint while deliveries go on.

For the length of the overlap every request is signed with the new secret and with the former ones, so that a receiver
may hold either. What is in flight when the secret is replaced carries only the former signatures; `rotate` answers when
none of that is out any more, so that a receiver may switch at the moment of the answer.

Limits of that: a request that a receiver has not read although its sender has given it up, and one of a worker that was
paused before its lease ran out and woke after it (`relay-epoch` fences that one).
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import transaction

from deliveries import ids, outstanding, sealing, signing
from deliveries.models import Endpoint
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret, Key, Signature
from ledger.models import Clock

log = logging.getLogger("relay.secrets")

OVERLAP = timedelta(hours=24)
LONGEST_OVERLAP = timedelta(hours=720)
MOST_FORMER = signing.MOST_SIGNATURES - 1
SIGN_ON = timedelta(minutes=1)
"""For how much longer than is promised a former secret signs. It is not accepted for longer."""
MARGIN_S = 2.0
"""How long `rotate` waits beyond a lease for what was signed before."""


class RotationRefused(ValueError):
    """Nothing was changed. `field`: which part of the wish is at fault, or None for the state that was found."""

    def __init__(self, field: str | None, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail


@dataclass(frozen=True, slots=True, repr=False)
class Rotated:
    """What a rotation came to. No repr: it holds the secret.

    `former_until`: until when the secret that was current before still signs; None when it stopped. `settled`: whether
    no request is out any more that the new secret does not verify; False when the wait for that was given up.
    """

    secret: str
    public_key: str | None
    question_key: str | None
    former_until: datetime | None
    settled: bool


def row_of(endpoint_id: uuid.UUID) -> str:
    """What an endpoint's signing secrets are sealed for."""
    return f"endpoint:{endpoint_id}"


@lru_cache(maxsize=4096)
def _key(endpoint_id: uuid.UUID, sealed: str) -> Key:
    return signing.key_of(sealing.unseal(sealed, row_of(endpoint_id)))


def secrets_of(endpoint: Endpoint, at: datetime) -> tuple[Key, ...]:
    """The keys that count at a moment of the database's clock: the current one, then the former ones whose time is not
    over, newest first.

    `SealBroken` or `BadSecret` when one of them cannot be used: a request without its signature could not be verified
    by a receiver that holds it.
    """
    current = _key(endpoint.endpoint_id, endpoint.secret_sealed)
    if not endpoint.former_secrets:
        return (current,)
    former = former_of(endpoint.former_secrets)
    return (current, *(_key(endpoint.endpoint_id, sealed) for sealed, until in former if until > at))


def signers_of(endpoint: Endpoint, at: datetime) -> tuple[Key, ...]:
    """The keys that sign a request at a moment: former ones a little longer than was promised, so that it matters
    neither how well two clocks agree nor how long a request is on its way."""
    return secrets_of(endpoint, at - SIGN_ON)


def public_keys(endpoint: Endpoint) -> tuple[str | None, str | None]:
    """What a receiver of `v1a` verifies deliveries with, and Relay's questions; (None, None) for `v1`."""
    key = _key(endpoint.endpoint_id, endpoint.secret_sealed)
    return key.public, key.for_questions().public


def former_of(former_secrets: Any) -> list[tuple[str, datetime]]:
    """The column `former_secrets` as (sealed, until), newest first. `SealBroken` when it is not of that form."""
    try:
        found = [(str(one["sealed"]), datetime.fromisoformat(one["until"])) for one in former_secrets]
    except (KeyError, TypeError, ValueError):
        raise SealBroken("the former secrets are damaged") from None
    if any(until.tzinfo is None for _, until in found):
        raise SealBroken("the end of a former secret has no time zone")
    return found


def former_json(former: list[tuple[str, datetime]]) -> list[dict[str, str]]:
    """The other way round."""
    return [{"sealed": sealed, "until": until.astimezone(UTC).isoformat()} for sealed, until in former]


def rotate(
    endpoint_id: uuid.UUID,
    *,
    overlap: timedelta = OVERLAP,
    secret: str | None = None,
    signature: Signature | None = None,
    patience_s: float | None = None,
) -> Rotated | None:
    """Give an endpoint a new signing secret (`secret`, or one that is made); None when there is no such endpoint.

    The secret that was current signs on for `overlap`. Without an overlap it and every earlier one stop at once: that
    is for a secret that leaked. `signature`: the kind of the new secret; without it, the kind of the current one.
    `RotationRefused` when nothing was changed. A `secret` that is current already changes nothing, so that the same
    call may be made again.

    Guarantee: when it answers `settled`, a receiver that holds only the new secret verifies every request that comes
    from then on, and one that holds only the former, every request until `former_until`. Two at the same time come one
    after the other, and both secrets are in the ring. The wait holds no lock and no transaction; it ends after
    `patience_s` (by default as long as a lease, and a margin).
    """
    made = _replace(endpoint_id, overlap, secret, signature)
    if made is None:
        return None
    new, former_until = made
    key = signing.key_of(new)
    patience = settings.RELAY_LEASE_TTL_MS / 1000 + MARGIN_S if patience_s is None else patience_s
    settled = outstanding.await_sent_before(endpoint_id, patience_s=patience)
    name = ids.render(ids.ENDPOINT, endpoint_id)
    log.info("%s has a new signing secret%s", name, "" if settled else "; requests from before may still be out")
    return Rotated(new, key.public, key.for_questions().public, former_until, settled)


def _replace(
    endpoint_id: uuid.UUID, overlap: timedelta, secret: str | None, signature: Signature | None
) -> tuple[str, datetime | None] | None:
    """The new secret and until when the last one signs on, committed."""
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise RotationRefused("overlap_hours", f"must be from 0 to {LONGEST_OVERLAP // timedelta(hours=1)}")
    given = None if secret is None else _given(secret, signature)
    with transaction.atomic(durable=True):
        rows = Endpoint.objects.select_for_update(no_key=True).filter(pk=endpoint_id, deleted_at=None)
        row = rows.first()
        if row is None:
            return None
        # Asked after the lock was waited for.
        now: datetime = Endpoint.objects.filter(pk=endpoint_id).values_list(Clock(), flat=True).get()
        current = _current(row, replaceable=not overlap)
        if signature is None and given is None and current is None:
            raise RotationRefused("signature", "is required: the secret that is to be replaced cannot be opened")
        kept = _kept(row, now) if overlap else []
        if given is not None and given == current:
            if not overlap:
                rows.update(former_secrets=[], updated_at=Clock())
            return str(secret), max((until for _, until in kept if until > now), default=None)
        new = secret or signing.new_secret(signature or (current.signature if current else Signature.V1))
        if given is not None:
            # It is current again: it signs once, and has no end.
            kept = [(sealed, until) for sealed, until in kept if _key(endpoint_id, sealed) != given]
        if len(kept) >= MOST_FORMER:
            first = min(until for _, until in kept) + SIGN_ON
            raise RotationRefused(
                None,
                f"{MOST_FORMER} former secrets still sign beside the current one, and that is the most. There is room "
                f"again at {first.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}; without an overlap all of them end at once.",
            )
        former_until = now + overlap if overlap else None
        if former_until is not None:
            kept.insert(0, (row.secret_sealed, former_until))
        # Where it did not open, the endpoint waits for one that does.
        waiting = {"blocked_until": None} if current is None else {}
        rows.update(
            secret_sealed=sealing.seal(new, row_of(endpoint_id)),
            former_secrets=former_json(kept),
            updated_at=Clock(),
            **waiting,
        )
    return new, former_until


def _given(secret: str, signature: Signature | None) -> Key:
    try:
        key = signing.key_of(secret)
    except BadSecret as bad:
        raise RotationRefused("secret", str(bad)) from bad
    if signature is not None and signature != key.signature:
        raise RotationRefused("signature", f"is {signature}, but the secret is one of {key.signature}")
    return key


def _current(row: Endpoint, *, replaceable: bool) -> Key | None:
    """The key that is to be replaced; None when it cannot be opened, which is no matter when it ends at once."""
    try:
        return _key(row.endpoint_id, row.secret_sealed)
    except (SealBroken, BadSecret) as unusable:
        if replaceable:
            return None
        raise RotationRefused(
            None,
            f"The secret that is to be replaced cannot sign on beside a new one: {unusable}. Put the key that opens it "
            "into RELAY_SECRET_KEY_FALLBACKS, or rotate without an overlap.",
        ) from unusable


def _kept(row: Endpoint, now: datetime) -> list[tuple[str, datetime]]:
    """The former secrets that still sign. All of them must open: a request is signed with each, or not made."""
    try:
        kept = [(sealed, until) for sealed, until in former_of(row.former_secrets) if until > now - SIGN_ON]
        for sealed, _ in kept:
            _key(row.endpoint_id, sealed)
    except (SealBroken, BadSecret) as unusable:
        raise RotationRefused(
            None,
            f"A former secret cannot sign on: {unusable}. Put the key that opens it into RELAY_SECRET_KEY_FALLBACKS, "
            "or rotate without an overlap.",
        ) from unusable
    return kept
