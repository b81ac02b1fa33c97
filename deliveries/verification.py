"""Verifying that an endpoint's URL wants what is sent to it: it is sent a challenge, signed, and says it back.

The challenge is a `POST` like a webhook, of the type `relay.verification`, made because somebody asked for it and
outside of the ledger: it is not tried again, and means nothing to any delivery. No transaction is open while HTTP is in
flight.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from dataclasses import dataclass

from deliveries import authorization, endpoints, ids, rotation, signing
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.tokens import TokenAwaited, TokenDelayed, TokenRefused
from deliveries.dispatch.wire import authorized, user_agent
from deliveries.egress import EgressPolicy
from deliveries.jobs import now
from deliveries.models import Endpoint
from deliveries.outcomes import ANSWERED
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret
from deliveries.transport.base import Headers
from deliveries.transport.single import Answer, fetch

TYPE = "relay.verification"
TIMEOUT_MS = 10_000
_TOKEN_S = 5.0
"""How long an access token is waited for."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class NotVerified:
    """Nothing was changed: what came back does not prove that the URL wants webhooks. `why` is a sentence."""

    why: str


def verify(row: Endpoint) -> Endpoint | NotVerified:
    """Send the endpoint's URL a challenge, and enable the endpoint when it says it back. It takes at most `TIMEOUT_MS`,
    and the time that an access token takes.

    What is verified is the URL that was called: when the endpoint has another one by then, it stays as it is.
    """
    challenge = secrets.token_urlsafe(24)
    body = json.dumps({"challenge": challenge}).encode()
    try:
        headers = _headers(row, body)
        tls = authorization.tls(row)
    except (SealBroken, BadSecret, TokenRefused) as unusable:
        return NotVerified(f"Nothing was sent, because nothing is sent unsigned or unauthenticated: {unusable}")
    except (TokenAwaited, TokenDelayed):
        return NotVerified("Nothing was sent: there is no access token for it yet. Try again.")
    timeout_ms = min(TIMEOUT_MS, Limits.from_settings().deadline_ms(row.timeout_ms))
    policy = EgressPolicy.from_settings()
    answer = fetch("POST", row.url, headers, body=body, timeout_ms=timeout_ms, policy=policy, tls=tls)
    why = _fault(answer, challenge)
    if why:
        return NotVerified(why)
    changed = endpoints.verified(row.tenant_id, row.endpoint_id, row.url)
    return changed or NotVerified("The endpoint was changed while its URL was asked. Try again.")


def _headers(row: Endpoint, body: bytes) -> Headers:
    """Those of a webhook. An access token that is being fetched is waited for."""
    until = time.monotonic() + _TOKEN_S
    while True:
        try:
            of_the_endpoint = authorized(row)
            break
        except TokenAwaited:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_S)
    moment, webhook_id = now(), f"vfy_{ids.time_ordered().hex}"
    timestamp = int(moment.timestamp())
    return (
        ("content-type", "application/json"),
        ("user-agent", user_agent()),
        ("webhook-id", webhook_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signing.sign_with_each(rotation.signers_of(row, moment), webhook_id, timestamp, body)),
        ("relay-event-type", TYPE),
        *of_the_endpoint,
    )


def _fault(answer: Answer, challenge: str) -> str:
    """Why an answer proves nothing; empty when it says the challenge. What it said is a stranger's and not repeated."""
    if answer.verdict != ANSWERED or answer.status is None:
        return f"There was no answer. {answer.error}".strip()
    if not 200 <= answer.status < 300:
        return f"The answer was {answer.status}, not 2xx."
    said = answer.body.strip()
    try:
        read = json.loads(said)
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict):
        read = read.get("challenge")
    text = read if isinstance(read, str) else said.decode("utf-8", "replace")
    if not hmac.compare_digest(text.encode("utf-8", "replace"), challenge.encode()):
        return "The answer's body is not the challenge, as text or as the member `challenge` of a JSON object."
    return ""
