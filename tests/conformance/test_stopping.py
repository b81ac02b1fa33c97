"""A request that is stopped, at each stage of its way, is reported by what is known of it then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Outcome, Request, Transport
from tests.conformance.cases import BODIES, Size
from tests.conformance.certificates import HOST, identities
from tests.conformance.receiver import Conversation
from tests.conformance.running import HEADERS
from tests.conformance.script import OK, Hang, Read, ReadBytes, Script, Send, Unread
from tests.conformance.subjects import SUBJECTS, subject


@dataclass(frozen=True)
class Stage:
    """Where the request is when it is stopped: `script` has come to its last step."""

    script: Script
    verdict: str
    status: int | None
    arrives: int
    size: Size = "7 B"
    handshake: bool = True


STAGES = {
    "handshake": Stage((Unread(), Hang()), NOT_SENT, None, 0, handshake=False),
    "sending": Stage((ReadBytes(100_000), Hang()), NOT_SENT, None, 0, "20 MB"),
    "sent": Stage((Read(), Hang()), UNKNOWN, None, 1),
    "in the head": Stage((Read(), Send(b"HTTP/1.1 200 OK\r\nX: y\r\n"), Hang()), UNKNOWN, None, 1),
    "in the body": Stage((Read(), Send(b"HTTP/1.1 202 OK\r\nContent-Length: 9\r\n\r\nhalf"), Hang()), ANSWERED, 202, 1),
    "informed": Stage((Read(), Send(b"HTTP/1.1 103 Early\r\n\r\n"), Hang()), UNKNOWN, None, 1),
    "refused early": Stage(
        (ReadBytes(100_000), Send(b"HTTP/1.1 413 No\r\nContent-Length: 9\r\n\r\nhalf"), Hang()),
        NOT_SENT,
        413,
        0,
        "20 MB",
    ),
}
_OVER = [
    (stage, scheme) for stage in STAGES for scheme in ("http", "tls") if STAGES[stage].handshake or scheme == "tls"
]


def _polled_until(transport: Transport, condition: Callable[[], bool]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    until = time.monotonic() + 20
    while not condition() and not outcomes:
        assert time.monotonic() < until, "the receiver did not come to the end of its script"
        outcomes = transport.poll(0.01)
    return outcomes


@pytest.mark.parametrize("stage, scheme", _OVER)
@pytest.mark.parametrize("transport", SUBJECTS)
def test_a_stopped_request_is_reported_by_evidence(transport: str, stage: str, scheme: str) -> None:
    plan = STAGES[stage]
    context = identities().servers["good"] if scheme == "tls" and plan.handshake else None
    with (
        Conversation(plan.script, context=context, receive_buffer=65536) as conversation,
        subject(transport) as under_test,
    ):
        host = f"https://{HOST}" if scheme == "tls" else "http://127.0.0.1"
        body = BODIES[plan.size]
        under_test.submit(Request(7, f"{host}:{conversation.port}/", HEADERS, body, 20_000))
        outcomes = _polled_until(under_test, lambda: conversation.at == len(plan.script) - 1)
        # An answer may have been complete for the transport before it could be stopped.
        stopped = bool(not outcomes)
        outcomes = outcomes or under_test.abort([7, 8])
        assert under_test.abort([7]) == []
        assert under_test.in_flight == 0
    (outcome,) = outcomes
    assert (outcome.key, outcome.verdict, outcome.http_status) == (7, plan.verdict, plan.status)
    assert outcome.evidence.aborted or not stopped or outcome.http_status == 413
    assert outcome.error.endswith(".")
    assert conversation.arrived == plan.arrives


@pytest.mark.parametrize("transport", SUBJECTS)
def test_a_request_is_stopped_while_its_name_is_looked_up(transport: str) -> None:
    with subject(transport) as under_test:
        under_test.submit(Request(7, "http://silent.example.com:9/", HEADERS, b"{}", 20_000))
        assert under_test.poll(0.05) == []
        (outcome,) = under_test.abort([7])
    assert (outcome.verdict, outcome.evidence.aborted, outcome.evidence.sends) == (NOT_SENT, True, 0)


@pytest.mark.parametrize("transport", SUBJECTS)
def test_a_stopped_request_harms_none_beside_it(transport: str) -> None:
    with (
        Conversation((Read(), Hang(), Send(OK))) as silent,
        Conversation((Read(), Send(OK))) as other,
        subject(transport) as under_test,
    ):
        under_test.submit(Request(1, f"http://127.0.0.1:{silent.port}/", HEADERS, b"{}", 20_000))
        _polled_until(under_test, lambda: silent.at == 1)
        under_test.submit(Request(2, f"http://127.0.0.1:{other.port}/", HEADERS, b"{}", 20_000))
        (stopped,) = under_test.abort([1])
        (answered,) = _polled_until(under_test, lambda: False)
    assert (stopped.verdict, answered.verdict, answered.key) == (UNKNOWN, ANSWERED, 2)
    assert silent.arrived == other.arrived == 1
