"""Standard Webhooks signatures, on bytes (https://www.standardwebhooks.com, specification 1.0.0).

What is signed is `{webhook-id}.{webhook-timestamp}.{body}` with the body as it goes on the wire, never a text that was
parsed and written again. The receiver finds the signature in `webhook-signature`; when a secret is being replaced the
header holds one signature per secret, separated by single spaces.

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

PREFIX = "whsec_"
NEW_SECRET_BYTES = 32
SHORTEST, LONGEST = 24, 64
TOLERANCE_S = 300
"""How far a message's timestamp may be from our clock, either way, in seconds."""
MOST_SIGNATURES = 10

ACKNOWLEDGEMENT, QUERY = b"relay acknowledgement", b"relay query"
"""The kinds of messages other than deliveries: a receiver's word to Relay, and Relay's question to a receiver."""

_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,255}")  # printable ASCII, without space and full stop
_UNIX_SECONDS = re.compile(r"[0-9]{1,12}")


class BadSecret(ValueError):
    """The text is not a signing secret. The message never contains the text."""


def new_secret() -> str:
    """A fresh secret: `whsec_` and the base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_SECRET_BYTES)).decode("ascii")


def secret_bytes(text: str) -> bytes:
    """The key inside `whsec_…`; `BadSecret` unless it is base64 of 24 to 64 bytes."""
    if not text.startswith(PREFIX):
        raise BadSecret(f"a signing secret starts with {PREFIX}")
    try:
        key = base64.b64decode(text[len(PREFIX) :], validate=True)
    except (binascii.Error, ValueError):
        raise BadSecret(f"what follows {PREFIX} must be base64 with padding") from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise BadSecret(f"a signing secret holds {SHORTEST} to {LONGEST} bytes; this one holds {len(key)}")
    return key


def derived(secret: bytes, kind: bytes) -> bytes:
    """The 32 bytes of key for messages of one kind: HMAC-SHA256 of the kind's name.

    A name has no full stop and what `sign` signs has two, so no signature that was ever made is such a key.
    `ValueError` for a name that has one.
    """
    if b"." in kind:
        raise ValueError("the name of a kind of messages may not contain a full stop")
    return hmac.digest(secret, kind, "sha256")


def sign(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64 of HMAC-SHA256>` for one attempt; `timestamp` is its time in Unix seconds.

    An id with a full stop would let two different triples sign alike, so it raises ValueError.
    """
    if "." in webhook_id:
        raise ValueError("a webhook id may not contain a full stop")
    mac = hmac.digest(secret, b"%b.%d.%b" % (webhook_id.encode("ascii"), timestamp, body), "sha256")
    return "v1," + binascii.b2a_base64(mac, newline=False).decode("ascii")


def is_timely(webhook_id: str, timestamp: str, now: float) -> bool:
    """Whether a message's id and timestamp (Unix seconds) are well-formed, and the time is within the tolerance."""
    return bool(
        _MESSAGE_ID.fullmatch(webhook_id)
        and _UNIX_SECONDS.fullmatch(timestamp)
        and abs(now - int(timestamp)) <= TOLERANCE_S
    )


def verify(secret: bytes, webhook_id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Whether one of the `signatures`, separated by single spaces, is that of this very message.

    Compared in constant time; the first `MOST_SIGNATURES` are looked at, all of them in any case. The id and the
    timestamp are as `is_timely` wants them.
    """
    expected = sign(secret, webhook_id, int(timestamp), body).encode()
    found = False
    for given in signatures.split(" ")[:MOST_SIGNATURES]:
        found |= hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected)
    return found
