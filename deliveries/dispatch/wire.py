"""From a claimed delivery to the request that is sent. The names of the headers: protocol, "Identity on the wire"."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from deliveries import authorization, rotation, signing
from deliveries.dispatch import tokens
from deliveries.dispatch.claiming import Content, Delivery
from deliveries.models import Endpoint, Envelope
from deliveries.rules.columns import reserved
from deliveries.transport.base import Headers, Request, Tls
from ledger import identity

CONNECT_TIMEOUT_MS = 5_000
"""For an endpoint that names no other."""


@lru_cache(maxsize=1)
def user_agent() -> str:
    """`Relay/VERSION`."""
    try:
        return f"Relay/{version('relay')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "Relay"


def operation_id(delivery: Delivery) -> str:
    """The public id of the delivery's operation."""
    claim = delivery.claim
    return identity.compose(claim.tenant_id, claim.run_id, claim.step_id, claim.effect_version)


def _body(delivery: Delivery) -> bytes:
    """What is sent and signed: the event's bytes as they were submitted, alone or inside the envelope of Standard
    Webhooks (its section "Payload structure")."""
    content = delivery.content
    if delivery.endpoint.envelope != Envelope.STANDARD:
        return content.payload
    head = json.dumps({"type": content.type, "timestamp": content.created_at.astimezone(UTC).isoformat()})
    return b'%b, "data": %b}' % (head[:-1].encode(), content.payload)


def _signatures(delivery: Delivery, moment: datetime, webhook_id: str, body: bytes) -> str:
    """One for each secret that a receiver may hold at this moment, over exactly these bytes."""
    keys = rotation.signers_of(delivery.endpoint, moment)
    return signing.sign_with_each(keys, webhook_id, int(moment.timestamp()), body)


def _authorization(endpoint: Endpoint) -> Headers:
    """How the request authenticates. `TokenAwaited`, `TokenDelayed` or `TokenRefused` when there is no token for it."""
    if endpoint.auth is None:
        return ()
    if not tokens.wants_token(endpoint):
        return (("authorization", authorization.authorization(endpoint)),)
    token = tokens.ready(endpoint)
    if token is None:
        raise tokens.TokenAwaited
    return (("authorization", f"Bearer {token}"),)


def _chosen(endpoint: Endpoint) -> Headers:
    """The headers that were chosen for the endpoint, the sealed ones opened; `SealBroken` when they do not open.

    Never one that Relay sends itself, although such a name may have been saved before it was reserved: of two headers
    with one name each receiver believes another.
    """
    pairs = (*endpoint.headers.items(), *authorization.secret_headers(endpoint))
    return tuple(pair for pair in pairs if not reserved(pair[0]))


def authorized(endpoint: Endpoint) -> Headers:
    """What a request to the endpoint's URL authenticates with, besides its signature, and every header chosen for it.

    It does not wait, and raises as `request_of`.
    """
    return (*_authorization(endpoint), *_chosen(endpoint))


def _of_the_event(content: Content, of_the_endpoint: Headers) -> Headers:
    """The headers that came with the event. One that the endpoint has too is the endpoint's own."""
    if content.headers is None:
        return ()
    taken = {name.lower() for name, _ in of_the_endpoint}
    own: dict[str, str] = json.loads(content.headers)
    return tuple((name, text) for name, text in own.items() if name.lower() not in taken and not reserved(name))


def _tls(endpoint: Endpoint) -> Tls:
    """What the connection shows, and whom it trusts."""
    return authorization.tls(endpoint)


def request_of(delivery: Delivery, *, now: float, timeout_ms: int) -> Request:
    """The signed request of this attempt. `now` is monotonic seconds; the timestamp is the database's clock.

    `SealBroken` or `BadSecret` when a secret of the endpoint cannot be used: nothing is sent unsigned, or without what
    it authenticates with. What `_authorization` raises comes before anything else.
    """
    claim, content, endpoint = delivery.claim, delivery.content, delivery.endpoint
    of_the_endpoint = authorized(endpoint)
    webhook_id = content.id
    body = _body(delivery)
    moment = delivery.moment(now)
    timestamp = int(moment.timestamp())
    return Request(
        key=claim.operation_key,
        url=endpoint.url,
        headers=(
            ("content-type", "application/json"),
            ("user-agent", user_agent()),
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", _signatures(delivery, moment, webhook_id, body)),
            ("idempotency-key", operation_id(delivery)),
            ("relay-event-type", content.type),
            ("relay-run-id", str(claim.run_id)),
            ("relay-epoch", str(claim.epoch)),
            ("relay-attempt", str(claim.attempts)),
            # One trace per event, one span per attempt (W3C Trace Context §3.2).
            ("traceparent", f"00-{content.event_id.hex}-{secrets.token_hex(8)}-01"),
            *of_the_endpoint,
            *_of_the_event(content, of_the_endpoint),
        ),
        body=body,
        timeout_ms=timeout_ms,
        connect_timeout_ms=min(endpoint.connect_timeout_ms or CONNECT_TIMEOUT_MS, timeout_ms),
        tls=_tls(endpoint),
    )
