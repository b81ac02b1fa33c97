"""What a receiver gets as the body: the data byte for byte, alone or inside the envelope of Standard Webhooks."""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest
from standardwebhooks import Webhook

from deliveries import ids
from deliveries.dispatch import claiming, wire
from deliveries.models import Endpoint, Envelope
from deliveries.transport.base import Request
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

DATA = b'{ "b":1.50, "a" : "\xc3\xa9\\u00e9", "n":12345678901234567890 }'


def sent(by: Caller, envelope: str) -> tuple[Request, str, str]:
    """The request that an event leads to, its endpoint's secret, and when it was accepted."""
    made = by.post("/v1/endpoints", {"url": rows.URL}).json()
    Endpoint.objects.filter(pk=ids.parse(ids.ENDPOINT, made["id"])).update(envelope=envelope)
    event = by.post("/v1/events", b'{"type": "caf\\u0065.open", "data": %b}' % DATA).json()
    (delivery,), _ = claiming.claim(claiming.Walk(), owner="w:1:a", batch=10, ttl_ms=30_000)
    accepted = by.get(f"/v1/events/{event['id']}").json()["created_at"]
    return wire.request_of(delivery, now=time.monotonic(), timeout_ms=1_000), made["secret"], accepted


def test_the_body_is_the_data_byte_for_byte(mine: Caller) -> None:
    request, secret, _ = sent(mine, Envelope.NONE)
    assert request.body == DATA
    Webhook(secret).verify(request.body, dict(request.headers))


def test_the_standard_envelope_holds_type_time_and_the_data_byte_for_byte_and_is_what_is_signed(mine: Caller) -> None:
    request, secret, accepted = sent(mine, Envelope.STANDARD)
    assert request.body.endswith(b', "data": ' + DATA + b"}")
    whole = json.loads(request.body)
    assert set(whole) == {"type", "timestamp", "data"}
    assert whole["type"] == "cafe.open"
    assert datetime.fromisoformat(whole["timestamp"]) == datetime.fromisoformat(accepted)
    assert whole["data"] == json.loads(DATA)
    Webhook(secret).verify(request.body, dict(request.headers))
