"""For who receives webhooks: verify what came, answer what Relay asks, acknowledge later.

Standard Webhooks (https://www.standardwebhooks.com, specification 1.0.0): signed is `{id}.{timestamp}.{body}`, on the
bytes as they came, never on a text that was parsed and written again. `v1` is HMAC-SHA256 with a secret that both sides
hold (`whsec_…`), `v1a` is Ed25519, verified with a public key (`whpk_…`).

An endpoint's secret signs deliveries and nothing else. Questions and acknowledgements have keys of their own, which
`key_for` derives; the functions here do that by themselves.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "BadSecret",
    "Question",
    "Verified",
    "WebhookVerificationError",
    "acknowledgement",
    "answer_question",
    "key_for",
    "question",
    "verify",
]

TOLERANCE_S = 300
ACKNOWLEDGEMENT, QUERY = "relay acknowledgement", "relay query"
SECRET, PAIR, PUBLIC = "whsec_", "whsk_", "whpk_"
MOST_SIGNATURES = 16
"""How many signatures of one header are looked at."""

Outcome = Literal["processed", "rejected", "never_arrived", "unknown"]
_SECONDS = re.compile(r"[0-9]{1,12}")


class WebhookVerificationError(Exception):
    """What came is not to be trusted: not signed, signed with another key, changed on the way, or too old."""


class BadSecret(ValueError):
    """The text is no secret or key of the kind that is needed. The message never contains it."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a webhook that is to be trusted says beside its body. Drop what you have seen by its `id`."""

    id: str
    timestamp: int
    type: str = ""
    operation: str = ""
    """The same at every attempt of one run; an acknowledgement names it."""
    run: str = ""
    epoch: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """What Relay asks: what became of `operation`?"""

    operation: str
    run: str
    event: str


def verify(
    secret_or_public_key: str, headers: Mapping[str, str], body: bytes, tolerance: float | None = TOLERANCE_S
) -> Verified:
    """Raise `WebhookVerificationError` unless the body is signed with the secret and its time is within `tolerance`
    seconds (None: whatever it is). One signature that fits is enough; unknown kinds are skipped.

    `BadSecret` for what is neither `whsec_…` nor `whpk_…`. Limit: a repetition within the tolerance verifies too; drop
    duplicates by the id.
    """
    if not isinstance(body, bytes):
        raise TypeError("the body must be bytes, exactly as they came")
    lower = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp = _checked(_verifier(secret_or_public_key), lower, body, tolerance)
    return Verified(
        id=message_id,
        timestamp=timestamp,
        type=lower.get("relay-event-type", ""),
        operation=lower.get("idempotency-key", ""),
        run=lower.get("relay-run-id", ""),
        epoch=_number(lower.get("relay-epoch")),
        attempt=_number(lower.get("relay-attempt")),
    )


def key_for(secret: str, kind: str) -> str:
    """The key for messages of one kind (`relay query`, `relay acknowledgement`), as `whsec_…`, from `whsec_…` or
    `whsk_…`. From the latter, that for acknowledgements only; it may be given to the receiver."""
    if secret.startswith(PAIR):
        if kind != ACKNOWLEDGEMENT:
            raise BadSecret("questions of an endpoint with a public key are verified with its question_key")
        material = _decoded(secret, PAIR)[:32]
    else:
        material = _shared(secret)
    return SECRET + _text(hmac.digest(material, kind.encode(), "sha256"))


def acknowledgement(
    secret: str,
    operation: str,
    run: str,
    outcome: Literal["processed", "rejected"],
    *,
    remote_id: str | None = None,
    detail: str | None = None,
    message_id: str | None = None,
    derived: bool = False,
    now: float | None = None,
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a POST to `/v1/acknowledgements`: what became of `operation` (`idempotency-key` of the
    webhook) and its `run` (`relay-run-id`).

    `derived`: the secret is the key for acknowledgements itself, as a receiver has it that holds a public key only.
    Give the same `message_id` when you repeat one later: the same again is recorded once.
    """
    said = {"operation": operation, "run": run, "outcome": outcome, "remote_id": remote_id, "detail": detail}
    body = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
    key = _shared(secret if derived else key_for(secret, ACKNOWLEDGEMENT))
    name, moment = message_id or f"msg_{uuid.uuid4().hex}", int(time.time() if now is None else now)
    signature = _text(hmac.digest(key, _signed(name, moment, body), "sha256"))
    headers = {
        "Content-Type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": str(moment),
        "webhook-signature": f"v1,{signature}",
    }
    return headers, body


def question(
    secret_or_question_key: str, headers: Mapping[str, str], tolerance: float | None = TOLERANCE_S
) -> Question:
    """What Relay asks with a GET, verified; `WebhookVerificationError` when it is not Relay who asks.

    It takes the endpoint's `whsec_…`, or its `question_key` (`whpk_…`).
    """
    lower = {name.lower(): value for name, value in headers.items()}
    asked = lower.get("relay-question", "")
    public = secret_or_question_key.startswith(PUBLIC)
    verifier = _verifier(secret_or_question_key if public else key_for(secret_or_question_key, QUERY))
    _checked(verifier, lower, asked.encode("utf-8", "surrogateescape"), tolerance)
    try:
        said: Any = json.loads(asked)
        return Question(str(said["operation"]), str(said.get("run", "")), str(said.get("event", "")))
    except (ValueError, TypeError, KeyError, AttributeError) as strange:
        raise WebhookVerificationError("it is signed, and no question") from strange


def answer_question(
    secret_or_question_key: str,
    headers: Mapping[str, str],
    look_up: Callable[[Question], tuple[Outcome, str | None]],
    tolerance: float | None = TOLERANCE_S,
) -> bytes:
    """The JSON to answer with, status 200. `look_up` says what became of it, and what you call what came of it (or
    None). Answer `never_arrived` only when it is true of everything that could still be working on it."""
    asked = question(secret_or_question_key, headers, tolerance)
    outcome, remote_id = look_up(asked)
    said = {"operation": asked.operation, "outcome": outcome}
    return json.dumps(said if remote_id is None else {**said, "remote_id": remote_id}).encode()


_Verifier = Callable[[bytes, list[str]], bool]


def _checked(verifier: _Verifier, lower: Mapping[str, str], body: bytes, tolerance: float | None) -> tuple[str, int]:
    """The id and the timestamp of a message that verifies."""
    message_id, timestamp = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "").strip()
    given = lower.get("webhook-signature", "").split()
    if not message_id or not timestamp or not given:
        raise WebhookVerificationError("it is not signed")
    if "." in message_id or not message_id.isascii() or not _SECONDS.fullmatch(timestamp):
        raise WebhookVerificationError("its id or timestamp is malformed")
    moment = int(timestamp)
    if not verifier(_signed(message_id, moment, body), given[:MOST_SIGNATURES]):
        raise WebhookVerificationError("its signature is wrong")
    if tolerance is not None and abs(time.time() - moment) > tolerance:
        raise WebhookVerificationError("its timestamp is too far from now")
    return message_id, moment


def _verifier(key: str) -> _Verifier:
    return _public_verifier(key) if key.startswith(PUBLIC) else _shared_verifier(key)


def _shared_verifier(secret: str) -> _Verifier:
    key = _shared(secret)

    def fits(signed: bytes, given: list[str]) -> bool:
        expected = f"v1,{_text(hmac.digest(key, signed, 'sha256'))}".encode()
        found = False
        for one in given:
            found |= hmac.compare_digest(one.encode("utf-8", "surrogateescape"), expected)
        return found

    return fits


def _public_verifier(key: str) -> _Verifier:
    # Read late: who has a shared secret needs no library for this.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw = _decoded(key, PUBLIC)
    if len(raw) != 32:
        raise BadSecret(f"what follows {PUBLIC} is 32 bytes")
    public = Ed25519PublicKey.from_public_bytes(raw)

    def fits(signed: bytes, given: list[str]) -> bool:
        for one in given:
            if not one.startswith("v1a,"):
                continue
            try:
                public.verify(base64.b64decode(one.removeprefix("v1a,"), validate=True), signed)
            except (InvalidSignature, binascii.Error, ValueError):
                continue
            return True
        return False

    return fits


def _signed(message_id: str, timestamp: int, body: bytes) -> bytes:
    if "." in message_id:
        raise ValueError("a webhook-id may not contain a full stop")
    return b"%b.%d.%b" % (message_id.encode("ascii"), timestamp, body)


def _shared(secret: str) -> bytes:
    if not secret.startswith(SECRET):
        raise BadSecret(f"a secret starts with {SECRET}, a public key with {PUBLIC}")
    key = _decoded(secret, SECRET)
    if not 24 <= len(key) <= 64:
        raise BadSecret(f"what follows {SECRET} is 24 to 64 bytes")
    return key


def _decoded(text: str, prefix: str) -> bytes:
    try:
        return base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raise BadSecret(f"what follows {prefix} must be base64 with padding") from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _number(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else 0
