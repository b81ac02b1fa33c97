"""A receiver that silently closes after every seventh answer: it has exactly the requests that are on record."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Outcome, Request, Transport
from tests.conformance.certificates import HOST, identities
from tests.conformance.running import HEADERS
from tests.conformance.seventh import EVERY, Seventh
from tests.conformance.subjects import SUBJECTS, subject

SOAK = bool(os.environ.get("RELAY_SOAK"))
DELIVERIES = 10_000 if SOAK else 1_500
IN_FLIGHT = 64
BODY = b'{"a":1}' * 20


def deliver(transport: Transport, url: str, count: int) -> list[Outcome]:
    """Send so many requests, `IN_FLIGHT` at once, each numbered in a header."""
    outcomes: list[Outcome] = []
    following = 0
    while len(outcomes) < count:
        while following < count and transport.in_flight < IN_FLIGHT:
            headers = (*HEADERS, ("x-key", str(following)))
            transport.submit(Request(following, url, headers, BODY, 30_000))
            following += 1
        came = transport.poll(60.0)
        assert came, f"nothing came of {transport.in_flight} requests in flight"
        outcomes += came
    return outcomes


def attempts(outcomes: list[Outcome]) -> Counter[int]:
    """Attempts that the record says may have reached the receiver, by key."""
    return Counter(outcome.key for outcome in outcomes if outcome.evidence.request_complete)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheme", ["http", "tls"])
@pytest.mark.parametrize("transport", SUBJECTS)
def test_the_receiver_counts_exactly_the_attempts_on_record(transport: str, scheme: str) -> None:
    count = DELIVERIES if scheme == "http" else DELIVERIES // 3
    context, host = (
        (None, "http://127.0.0.1") if scheme == "http" else (identities().servers["good"], f"https://{HOST}")
    )
    with Seventh(context) as receiver, subject(transport) as under_test:
        outcomes = deliver(under_test, f"{host}:{receiver.port}/", count)
    assert receiver.complete == attempts(outcomes)
    assert set(receiver.complete.values()) == {1}
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    assert receiver.answers == verdicts[ANSWERED]
    assert receiver.complete.total() == verdicts[ANSWERED] + verdicts[UNKNOWN]
    assert not [outcome for outcome in outcomes if outcome.verdict == NOT_SENT and receiver.complete[outcome.key]]
    assert receiver.closed == receiver.answers // EVERY
    _connections(f"{transport} over {scheme}", outcomes, receiver, verdicts)


def _connections(title: str, outcomes: list[Outcome], receiver: Seventh, verdicts: Counter[str]) -> None:
    reused = sum(outcome.evidence.reused for outcome in outcomes)
    print(
        f"\n{title}: {len(outcomes)} deliveries, {dict(verdicts)}, {receiver.complete.total()} at the receiver on "
        f"{receiver.connections} connections, {reused} on a used one, {receiver.closed} closed silently"
    )
    if title.startswith("requests"):
        assert reused == 0
    else:
        assert reused > len(outcomes) // 2
        assert receiver.connections < len(outcomes) // 2
