"""Sealing what is sealed anew: under the current key of the ring, so that a former key can be taken out of it.

Beside a running system: a row is written only where it still holds the tokens that were read, so that a rotation in
between is never undone. What was done is not done again, and so it may be broken off and begun anew at any time.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from deliveries import rotation, sealing
from deliveries.models import Endpoint
from deliveries.queries import DELIVERIES
from deliveries.sealing import SealBroken

FIRST = uuid.UUID(int=0)
BATCH = 100
"""How many rows are locked and committed together."""
TRIES = 5

COLUMNS = {
    "secret_sealed": "",
    "secret_headers_sealed": ":headers",
    "auth_sealed": ":auth",
    "client_key_sealed": ":client_key",
}
"""The columns that hold a token, and how what each is bound to goes on after the row's own name."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How many tokens, of how many endpoints, name a key. `key_id` is empty for what is no token at all."""

    key_id: str
    tokens: int
    endpoints: int


@dataclass(frozen=True, slots=True)
class _Stale:
    endpoint_id: uuid.UUID
    secret_sealed: str
    secret_headers_sealed: str
    auth_sealed: str
    client_key_sealed: str
    former_secrets: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a stretch of endpoints came to. `walked_to` is None at the end; `unopened`: those of which something does
    not open with any key of the ring, and was left as it is."""

    walked_to: uuid.UUID | None
    resealed: int
    unopened: tuple[uuid.UUID, ...]


def key_uses() -> list[KeyUse]:
    """Every key that is named by a token. One scan of all endpoints."""
    return DELIVERIES["resealing.key_ids"].rows(KeyUse)


def lost_keys() -> list[KeyUse]:
    """The keys that are named by what is in use, and are not in the ring. One scan of all endpoints."""
    return DELIVERIES["resealing.lost"].rows(KeyUse, {"ring": list(sealing.key_ids())})


def reseal_stretch(after: uuid.UUID, *, batch: int = BATCH) -> Stretch:
    """Seal anew what the next `batch` endpoints after a key hold under other keys than the current one."""
    rows = _stale(after, batch)
    resealed, unopened = 0, []
    with transaction.atomic():
        for row in rows:
            done, whole = _reseal(row)
            resealed += done
            if not whole:
                unopened.append(row.endpoint_id)
    return Stretch(rows[-1].endpoint_id if len(rows) == batch else None, resealed, tuple(unopened))


def _stale(after: uuid.UUID, batch: int) -> list[_Stale]:
    return DELIVERIES["resealing.stale"].rows(_Stale, {"after": after, "batch": batch, "current": sealing.key_ids()[0]})


def _reseal(row: _Stale) -> tuple[bool, bool]:
    """Whether something was written, and whether all of the row opened."""
    for _ in range(TRIES):
        old, new, whole = _changes(row)
        if not new:
            return False, whole
        if Endpoint.objects.filter(pk=row.endpoint_id, **old).update(**new):
            return True, whole
        # Somebody was faster, and the lock is ours to wait for no more: look at what is there now.
        again = _stale(uuid.UUID(int=row.endpoint_id.int - 1), 1)
        if not again or again[0].endpoint_id != row.endpoint_id:
            return False, True
        row = again[0]
    return False, False


def _changes(row: _Stale) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The columns to write, with what they hold now and with what they are to hold; and whether everything opened."""
    current = sealing.key_ids()[0]
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    whole = True
    own = rotation.row_of(row.endpoint_id)
    for column, purpose in COLUMNS.items():
        token: str = getattr(row, column)
        if not token or sealing.key_id_of(token) == current:
            continue
        try:
            new[column] = sealing.seal(sealing.unseal(token, own + purpose), own + purpose)
            old[column] = token
        except SealBroken:
            whole = False
    stored = json.loads(row.former_secrets)
    try:
        # What is over is dropped: nobody needs it, and so it need not open.
        living = [(sealed, until) for sealed, until in rotation.former_of(stored) if until > row.now]
        if any(sealing.key_id_of(sealed) != current for sealed, _ in living):
            fresh = [(sealing.seal(sealing.unseal(sealed, own), own), until) for sealed, until in living]
            old["former_secrets"], new["former_secrets"] = stored, rotation.former_json(fresh)
    except SealBroken:
        whole = False
    return old, new, whole
