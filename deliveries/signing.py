"""Standard Webhooks signatures, on bytes (https://www.standardwebhooks.com, specification 1.0.0).

What is signed is `{webhook-id}.{webhook-timestamp}.{body}` with the body as it goes on the wire, never a text that was
parsed and written again. The receiver finds the signature in `webhook-signature`; when a secret is being replaced the
header holds one signature per secret, separated by single spaces.

Two kinds of signatures: `v1` is HMAC-SHA256 with a secret that both sides hold (`whsec_…`); `v1a` is Ed25519 (RFC 8032)
with a secret that only Relay holds (`whsk_…`, 64 bytes: seed and public key), and a public key for the receiver
(`whpk_…`, 32 bytes).

Deliveries are signed with the endpoint's secret itself. Their body is the submitter's, word for word: whatever somebody
would like to have signed can be put into one. So nothing else is signed with that key. Every other kind of message has
a key of its own, which `derived` makes; a signed message of one kind is worth nothing as one of another.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX, PAIR_PREFIX, PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
NEW_SECRET_BYTES = 32
SHORTEST, LONGEST = 24, 64
SEED_BYTES = 32
TOLERANCE_S = 300
"""How far a message's timestamp may be from our clock, either way, in seconds."""
MOST_SIGNATURES = 10

ACKNOWLEDGEMENT, QUERY = b"relay acknowledgement", b"relay query"
"""The kinds of messages other than deliveries: a receiver's word to Relay, and Relay's question to a receiver."""

_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,255}")  # printable ASCII, without space and full stop
_UNIX_SECONDS = re.compile(r"[0-9]{1,12}")


class Signature(StrEnum):
    """The kinds of signatures, by their names in the header."""

    V1 = "v1"
    V1A = "v1a"


class BadSecret(ValueError):
    """The text is not a signing secret. The message never contains the text."""


@dataclass(frozen=True, repr=False)
class SharedKey:
    """A key of `v1`. It has no repr: it is a secret."""

    secret: bytes

    signature = Signature.V1

    @property
    def public(self) -> str | None:
        """There is none: both sides hold the secret."""
        return None

    def sign(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """`v1,…` for one message."""
        return sign(self.secret, webhook_id, timestamp, body)

    def derived(self, kind: bytes) -> bytes:
        """The shared key for messages of one kind."""
        return derived(self.secret, kind)

    def for_questions(self) -> Key:
        """The key that signs Relay's questions to the receiver."""
        return SharedKey(self.derived(QUERY))


@dataclass(frozen=True, repr=False)
class PairKey:
    """A key of `v1a`, by its seed. It has no repr: it is a secret. What was loaded is kept: it costs a signature."""

    seed: bytes

    signature = Signature.V1A

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> str | None:
        """`whpk_…`: what a receiver verifies with."""
        return PUBLIC_PREFIX + _text(self._private.public_key().public_bytes_raw())

    @property
    def secret_text(self) -> str:
        """`whsk_…`."""
        return PAIR_PREFIX + _text(self.seed + self._private.public_key().public_bytes_raw())

    def sign(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """`v1a,…` for one message."""
        return f"{Signature.V1A},{_text(self._private.sign(signed_content(webhook_id, timestamp, body)))}"

    def derived(self, kind: bytes) -> bytes:
        """The shared key for messages of one kind: made from the seed, which the receiver does not hold. Whoever holds
        the secret can make it and give it to the receiver: it is no step towards the seed."""
        return derived(self.seed, kind)

    def for_questions(self) -> Key:
        """The key that signs Relay's questions to the receiver, who verifies with that key's own public half."""
        return PairKey(self.derived(QUERY))


Key = SharedKey | PairKey


def new_secret(signature: Signature = Signature.V1) -> str:
    """A fresh secret, as text: 32 random bytes."""
    if signature is Signature.V1A:
        return PairKey(secrets.token_bytes(SEED_BYTES)).secret_text
    return PREFIX + _text(secrets.token_bytes(NEW_SECRET_BYTES))


def key_of(text: str) -> Key:
    """The key inside `whsec_…` or `whsk_…`; `BadSecret` for everything else."""
    if text.startswith(PAIR_PREFIX):
        return PairKey(_seed(text))
    return SharedKey(secret_bytes(text))


def secret_bytes(text: str) -> bytes:
    """The key inside `whsec_…`; `BadSecret` unless it is base64 of 24 to 64 bytes."""
    if text.startswith(PUBLIC_PREFIX):
        raise BadSecret(f"{PUBLIC_PREFIX} is a public key, with which nothing can be signed")
    if not text.startswith(PREFIX):
        raise BadSecret(f"a signing secret starts with {PREFIX} (v1) or {PAIR_PREFIX} (v1a)")
    key = _decoded(text, PREFIX)
    if not SHORTEST <= len(key) <= LONGEST:
        raise BadSecret(f"a signing secret holds {SHORTEST} to {LONGEST} bytes; this one holds {len(key)}")
    return key


def _seed(text: str) -> bytes:
    """The seed inside `whsk_…`. The other half must be its public key: receivers verify with that one."""
    pair = _decoded(text, PAIR_PREFIX)
    if len(pair) != 2 * SEED_BYTES:
        raise BadSecret(f"what follows {PAIR_PREFIX} is {2 * SEED_BYTES} bytes, seed and public key, not {len(pair)}")
    seed, public = pair[:SEED_BYTES], pair[SEED_BYTES:]
    if Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != public:
        raise BadSecret(f"the second half of what follows {PAIR_PREFIX} is not the public key of the first")
    return seed


def _decoded(text: str, prefix: str) -> bytes:
    try:
        return base64.b64decode(text[len(prefix) :], validate=True)
    except (binascii.Error, ValueError):
        raise BadSecret(f"what follows {prefix} must be base64 with padding") from None


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def derived(secret: bytes, kind: bytes) -> bytes:
    """The 32 bytes of key for messages of one kind: HMAC-SHA256 of the kind's name.

    A name has no full stop and what `sign` signs has two, so no signature that was ever made is such a key.
    `ValueError` for a name that has one.
    """
    if b"." in kind:
        raise ValueError("the name of a kind of messages may not contain a full stop")
    return hmac.digest(secret, kind, "sha256")


def signed_content(webhook_id: str, timestamp: int, body: bytes) -> bytes:
    """What is signed; `timestamp` is the attempt's time in Unix seconds.

    An id with a full stop would let two different triples sign alike, so it raises ValueError.
    """
    if "." in webhook_id:
        raise ValueError("a webhook id may not contain a full stop")
    return b"%b.%d.%b" % (webhook_id.encode("ascii"), timestamp, body)


def sign(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64 of HMAC-SHA256>` for one attempt. ValueError for an id with a full stop."""
    mac = hmac.digest(secret, signed_content(webhook_id, timestamp, body), "sha256")
    return f"{Signature.V1},{_text(mac)}"


def sign_with_each(keys: tuple[Key, ...], webhook_id: str, timestamp: int, body: bytes) -> str:
    """The header: one signature per key, in their order, between single spaces. ValueError without any key."""
    if not keys:
        raise ValueError("nothing is sent unsigned")
    return " ".join([key.sign(webhook_id, timestamp, body) for key in keys])


def is_timely(webhook_id: str, timestamp: str, now: float) -> bool:
    """Whether a message's id and timestamp (Unix seconds) are well-formed, and the time is within the tolerance."""
    return bool(
        _MESSAGE_ID.fullmatch(webhook_id)
        and _UNIX_SECONDS.fullmatch(timestamp)
        and abs(now - int(timestamp)) <= TOLERANCE_S
    )


def verify(secret: bytes, webhook_id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Whether one of the `signatures`, separated by single spaces, is that of this very message under v1.

    Compared in constant time; the first `MOST_SIGNATURES` are looked at, all of them in any case. The id and the
    timestamp are as `is_timely` wants them.
    """
    expected = sign(secret, webhook_id, int(timestamp), body).encode()
    found = False
    for given in signatures.split(" ")[:MOST_SIGNATURES]:
        found |= hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected)
    return found
