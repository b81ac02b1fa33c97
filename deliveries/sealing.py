"""Secrets at rest: AES-256-GCM with a key ring, bound to the row that they belong to, failing closed.

The ring comes from `SECRET_KEY` (seals) and `SECRET_KEY_FALLBACKS` (still open what they sealed), each stretched by
HKDF-SHA256 (RFC 5869) to a key of this use alone. A token is `<key id>.<base64url of nonce, ciphertext and tag>`.
The key id and the row's identity are the associated data: a token that was moved to another row does not open.
Nonces are 96 random bits, safe for 2^32 tokens under one key (NIST SP 800-38D, 8.3).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_PURPOSE = b"relay: secrets at rest, 1"
_NONCE, _TAG = 12, 16
KEY_ID_LENGTH = 12
_TOKEN_HEAD = re.compile(rf"[0-9a-f]{{{KEY_ID_LENGTH}}}\.")


class SealBroken(Exception):
    """The token does not open here: another row's, another key's, or damaged. The message holds nothing of it."""


@lru_cache(maxsize=4)
def _ring(first: str, *others: str) -> dict[str, AESGCM]:
    """Key id to cipher; the first one seals. The id is a digest of the derived key and reveals nothing of it."""
    ring: dict[str, AESGCM] = {}
    for source in (first, *others):
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(source.encode())
        ring.setdefault(hashlib.sha256(_PURPOSE + key).hexdigest()[:KEY_ID_LENGTH], AESGCM(key))
    return ring


def _current_ring() -> dict[str, AESGCM]:
    return _ring(settings.SECRET_KEY, *getattr(settings, "SECRET_KEY_FALLBACKS", ()))


def key_ids() -> tuple[str, ...]:
    """The ids of the keys in the ring; the first one seals."""
    return tuple(_current_ring())


def key_id_of(token: str) -> str:
    """The id of the key that a token names; empty when it is no token."""
    key_id = token[:KEY_ID_LENGTH]
    return key_id if _TOKEN_HEAD.match(token) else ""


def _bound_to(key_id: str, row: str) -> bytes:
    return f"{key_id}|{row}".encode()


def seal(plain: str, row: str) -> str:
    """Encrypt `plain` for `row`, which names one row for ever (`endpoint:<uuid>`)."""
    key_id, cipher = next(iter(_current_ring().items()))
    nonce = os.urandom(_NONCE)
    sealed = nonce + cipher.encrypt(nonce, plain.encode(), _bound_to(key_id, row))
    return f"{key_id}.{base64.urlsafe_b64encode(sealed).decode('ascii')}"


def unseal(token: str, row: str) -> str:
    """What `seal` was given for the same `row`; `SealBroken` otherwise, never a wrong or an encrypted value."""
    key_id, _, text = token.partition(".")
    cipher = _current_ring().get(key_id)
    if cipher is None:
        raise SealBroken("the secret was sealed under a key that is not in the ring")
    try:
        sealed = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SealBroken("the sealed secret is damaged") from None
    if len(sealed) < _NONCE + _TAG:
        raise SealBroken("the sealed secret is cut short")
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound_to(key_id, row)).decode()
    except InvalidTag:
        raise SealBroken("the sealed secret does not open for this row") from None
