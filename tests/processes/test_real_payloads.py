"""Payloads of real webhooks, submitted over HTTP as a producer would, and delivered byte for byte."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import msgspec
import pytest
import requests
from standardwebhooks.webhooks import Webhook

from deliveries import keys
from deliveries.models import Scope
from tests.support import deliveries
from tests.support.sink import Arrived, Sink
from tests.support.waiting import wait_until
from tests.support.web import Web

pytestmark = pytest.mark.usefixtures("consumer")

EXAMPLES = Path(__file__).resolve().parent.parent / "data" / "github-webhooks" / "index.json.xz"
TOGETHER = 8
DELIVERED_S = 30.0


class Kind(msgspec.Struct):
    """One kind of webhook; its examples as they are spelt in the file."""

    name: str
    examples: list[msgspec.Raw]


@cache
def payloads() -> list[tuple[str, bytes]]:
    """Event type and exact bytes of each example."""
    kinds = msgspec.json.decode(lzma.decompress(EXAMPLES.read_bytes()), type=list[Kind])
    return [(f"github.{kind.name}", bytes(example)) for kind in kinds for example in kind.examples]


@pytest.fixture(scope="module")
def web(committed_database: None) -> Iterator[Web]:
    with Web() as serving:
        yield serving


class Producer:
    """Submits to the web server with a key of one tenant."""

    def __init__(self, web: Web, tenant_id: str) -> None:
        _, key = keys.new_key("a producer", [Scope.EVENTS_WRITE], tenant_id)
        self.url = f"{web.url}/v1/events"
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def submit(self, session: requests.Session, kind: str, payload: bytes) -> str:
        """The id of the event, whose `data` is `payload` as it is."""
        body = b'{"type":"%s","data":%s}' % (kind.encode(), payload)
        answer = session.post(self.url, data=body, headers=self.headers, timeout=20)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


def check(sink: Sink, secret: str, accepted: dict[str, tuple[str, bytes]]) -> None:
    """Wait for everything that was accepted, and compare it with what arrived."""
    wait_until(lambda: len(sink.requests) >= len(accepted), DELIVERED_S, "everything delivered")
    assert sink.events == dict.fromkeys(accepted, 1)
    receiver = Webhook(secret)
    for request in sink.requests:
        kind, payload = accepted[request.event]
        assert request.body == payload
        assert request.headers["relay-event-type"] == kind
        assert request.headers["content-type"] == "application/json"
        assert receiver.verify(request.body, request.headers) == msgspec.json.decode(payload)


def test_real_webhooks_submitted_one_by_one_arrive_as_they_were_byte_for_byte(tenant: str, web: Web) -> None:
    producer = Producer(web, tenant)
    with Sink() as sink, requests.Session() as session:
        _, secret = deliveries.endpoint(tenant, sink.url, in_flight=64)
        accepted = {producer.submit(session, kind, payload): (kind, payload) for kind, payload in payloads()}
        assert len(accepted) == len(payloads()) == 329
        check(sink, secret, accepted)
        wait_until(lambda: not deliveries.unsettled(tenant), DELIVERED_S, "everything settled")
        _refuses_what_was_changed(secret, sink.requests[0])


def test_real_webhooks_submitted_all_at_once_arrive_as_they_were_byte_for_byte(tenant: str, web: Web) -> None:
    producer = Producer(web, tenant)

    def share(number: int) -> dict[str, tuple[str, bytes]]:
        mine = payloads()[number::TOGETHER]
        with requests.Session() as session:
            return {producer.submit(session, kind, payload): (kind, payload) for kind, payload in mine}

    with Sink() as sink:
        _, secret = deliveries.endpoint(tenant, sink.url, in_flight=64)
        with ThreadPoolExecutor(TOGETHER) as producers:
            shares = list(producers.map(share, range(TOGETHER)))
        accepted = {event: sent for each in shares for event, sent in each.items()}
        assert len(accepted) == len(payloads())
        check(sink, secret, accepted)
        wait_until(lambda: not deliveries.unsettled(tenant), DELIVERED_S, "everything settled")


def test_payloads_that_a_parser_would_change_arrive_as_they_were(tenant: str, web: Web) -> None:
    strange = [
        b'{"amount":1.10,"big":123456789012345678901234567890,"exponent":1E+2}',
        b'{ "b" : 1,\n\t"a" : 2 , "b" : 3 }',
        rb'{"escaped":"caf\u00e9 \u0000 \ud83d\ude00 \/","name":"\u0041"}',
        '{"plain":"café 😀 \u2028 \u200b"}'.encode(),
        b"[]",
        b'"text"',
        b"0",
        b"-0.0",
        b"null",
    ]
    producer = Producer(web, tenant)
    with Sink() as sink, requests.Session() as session:
        _, secret = deliveries.endpoint(tenant, sink.url)
        accepted = {producer.submit(session, "strange", payload): payload for payload in strange}
        wait_until(lambda: len(sink.requests) == len(strange), DELIVERED_S, "everything delivered")
        for request in sink.requests:
            assert request.body == accepted[request.event]
            Webhook(secret).verify(request.body, request.headers)


def _refuses_what_was_changed(secret: str, request: Arrived) -> None:
    """So that a signature that is found good means something."""
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(secret).verify(request.body + b" ", request.headers)
