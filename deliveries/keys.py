"""API keys: made, found and judged. A key is shown once, when it is made, and kept only as a hash.

Form: `rk_`, ten public characters by which it is found, `_`, and 32 random bytes in base64url. The secret has 256
bits, so one SHA-256 is enough at rest: nothing slower would protect it better. A key that somebody chose by hand is
accepted from 16 characters up; it is found by the beginning of its hash.

A good key is remembered in this process for at most `REMEMBERED_FOR` seconds, and never beyond its expiry. So an
expiry is exact, and a revocation is complete in every process two seconds after it was committed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Q

from deliveries.models import ApiKey, Scope
from ledger.models import Clock

REMEMBERED_FOR = 2.0
REMEMBERED_AT_MOST = 1024
USED_EVERY = timedelta(minutes=1)
SHORTEST_CHOSEN, LONGEST = 16, 255

_PUBLIC = "abcdefghijklmnopqrstuvwxyz0123456789"
_MADE = re.compile(r"rk_([A-Za-z0-9]{10})_[A-Za-z0-9_-]{43}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class BadKey(ValueError):
    """A key that cannot be made: too short, too long, not visible ASCII, or with scopes that do not exist."""


class KeyRefusal(StrEnum):
    """Why a presented key is not accepted."""

    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class _Remembered:
    key: ApiKey
    until: float


_remembered: dict[bytes, _Remembered] = {}


def new_key(
    name: str,
    scopes: Iterable[str],
    tenant_id: str | None,
    text: str | None = None,
    expires_at: datetime | None = None,
    created_by: str = "",
) -> tuple[ApiKey, str]:
    """Make a key and return its row and its text: the only time that the text exists outside its holder's hands.

    Without a tenant it is the operator's. `text` is a key that somebody chose; it must be visible ASCII of 16 to 255
    characters. `BadKey` otherwise, and for a scope that does not exist.
    """
    wanted = list(dict.fromkeys(scopes))
    strange = [scope for scope in wanted if scope not in Scope.values]
    if strange or not wanted:
        raise BadKey(f"scopes must be some of {', '.join(Scope.values)}" + (f", not {strange[0]!r}" if strange else ""))
    if text is None:
        text = f"rk_{''.join(secrets.choice(_PUBLIC) for _ in range(10))}_{secrets.token_urlsafe(32)}"
    elif not (_VISIBLE.fullmatch(text) and SHORTEST_CHOSEN <= len(text) <= LONGEST):
        raise BadKey(f"a key is {SHORTEST_CHOSEN} to {LONGEST} visible ASCII characters without spaces")
    row = ApiKey.objects.create(
        name=name,
        tenant_id=tenant_id,
        lookup=lookup_of(text),
        secret_hash=_digest(text),
        scopes=wanted,
        expires_at=expires_at,
        created_by=created_by,
    )
    row.refresh_from_db()
    return row, text


def lookup_of(text: str) -> str:
    """The public part of a key, under which its row is found."""
    made = _MADE.fullmatch(text)
    return made.group(1) if made else f"chosen-{_digest(text).hex()[:16]}"


def authenticate(text: str) -> ApiKey | None:
    """The key that `text` is, or None when it is unknown, expired or revoked."""
    judged = judge(text)
    return None if isinstance(judged, KeyRefusal) else judged


def judge(text: str) -> ApiKey | KeyRefusal:
    """As `authenticate`, but says why not.

    The reason is only told to somebody who presented the whole secret. One indexed query, or none while the key is
    remembered; the row that is returned is shared between threads and must not be changed.
    """
    if len(text) > LONGEST or not _VISIBLE.fullmatch(text):
        return KeyRefusal.UNKNOWN
    digest = _digest(text)
    known = _remembered.get(digest)
    started = time.monotonic()
    if known is not None and started < known.until:
        return known.key
    row = (
        ApiKey.objects.filter(lookup=lookup_of(text))
        .annotate(
            left=ExpressionWrapper(F("expires_at") - Clock(), DurationField()),
            idle=ExpressionWrapper(Clock() - F("last_used_at"), DurationField()),
        )
        .order_by()
        .first()
    )
    if row is None or not hmac.compare_digest(bytes(row.secret_hash), digest):
        return KeyRefusal.UNKNOWN
    if row.revoked_at is not None:
        return KeyRefusal.REVOKED
    if row.left is not None and row.left <= timedelta(0):
        return KeyRefusal.EXPIRED
    if row.idle is None or row.idle > USED_EVERY:
        _mark_used(row.key_id)
    lasting = REMEMBERED_FOR if row.left is None else min(REMEMBERED_FOR, row.left.total_seconds())
    if len(_remembered) >= REMEMBERED_AT_MOST:
        _remembered.clear()
    # Counted from before the query: a revocation that committed after it is seen two seconds later at most.
    _remembered[digest] = _Remembered(row, started + lasting)
    return row


class KeyOver(Exception):
    """The key is revoked or expired: nothing can be made of it."""


def rotate(key_id: UUID, overlap: timedelta, *, created_by: str) -> tuple[ApiKey, str]:
    """A new key in the place of an old one: the same name, tenant and scopes. The old one is good for `overlap` more,
    and never for longer than it was. `KeyOver` when it is over already.

    Returns the new row and its text, as `new_key`. This process forgets the old key at once, the others within
    `REMEMBERED_FOR` seconds.
    """
    with transaction.atomic():
        rows = ApiKey.objects.filter(key_id=key_id)
        old = rows.select_for_update(no_key=True).annotate(now=Clock()).get()
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= old.now):
            raise KeyOver
        made = new_key(old.name, old.scopes, old.tenant_id, expires_at=old.expires_at, created_by=created_by)
        until = old.now + overlap
        if old.expires_at is None or until < old.expires_at:
            rows.update(expires_at=until)
    forget()
    return made


def revoke(key_id: UUID) -> bool:
    """Revoke a key for good. False when it does not exist or was revoked before.

    This process forgets it at once; the others within `REMEMBERED_FOR` seconds.
    """
    changed = ApiKey.objects.filter(key_id=key_id, revoked_at=None).update(revoked_at=Clock())
    forget()
    return changed == 1


def forget() -> None:
    """Forget every remembered key of this process."""
    _remembered.clear()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _mark_used(key_id: UUID) -> None:
    """Coarse on purpose: one write a minute for a busy key. The condition lets one of many rivals write."""
    idle = Q(last_used_at=None) | Q(last_used_at__lt=Clock() - USED_EVERY)
    ApiKey.objects.filter(idle, key_id=key_id).update(last_used_at=Clock())
