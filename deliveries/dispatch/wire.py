"""From a claimed delivery to the request that is sent. The names of the headers: protocol, "Identity on the wire"."""

from __future__ import annotations

import json
import secrets
from datetime import UTC
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from deliveries import ids, signing
from deliveries.dispatch.claiming import Delivery, signing_secret
from deliveries.models import Envelope
from deliveries.transport.base import Request
from ledger import identity


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


def request_of(delivery: Delivery, *, now: float, timeout_ms: int) -> Request:
    """The signed request of this attempt. `now` is monotonic seconds; the timestamp is the database's clock.

    `SealBroken` or `BadSecret` when the endpoint's secret cannot be used: nothing is sent unsigned.
    """
    claim, content, endpoint = delivery.claim, delivery.content, delivery.endpoint
    webhook_id = ids.render(ids.EVENT, content.event_id)
    body = _body(delivery)
    timestamp = int(delivery.moment(now).timestamp())
    return Request(
        key=claim.operation_key,
        url=endpoint.url,
        headers=(
            ("content-type", "application/json"),
            ("user-agent", user_agent()),
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", signing.sign(signing_secret(endpoint), webhook_id, timestamp, body)),
            ("idempotency-key", operation_id(delivery)),
            ("relay-event-type", content.type),
            ("relay-run-id", str(claim.run_id)),
            ("relay-epoch", str(claim.epoch)),
            ("relay-attempt", str(claim.attempts)),
            # One trace per event, one span per attempt (W3C Trace Context §3.2).
            ("traceparent", f"00-{content.event_id.hex}-{secrets.token_hex(8)}-01"),
            *endpoint.headers.items(),
        ),
        body=body,
        timeout_ms=timeout_ms,
    )
