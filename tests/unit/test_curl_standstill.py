"""A sender that stood still past its deadline: what was answered meanwhile lies in its sockets, and is not dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from deliveries.outcomes import ANSWERED, UNKNOWN
from deliveries.transport.base import Outcome
from deliveries.transport.curl import CurlTransport
from tests.receiver import Answer, Receiver
from tests.support.sink import Sink
from tests.support.waiting import wait_until
from tests.transports import LOOPBACK, collect, request

TIMEOUT_MS = 300


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    made = CurlTransport(LOOPBACK)
    yield made
    made.close()


def in_flight_and_answered(transport: CurlTransport, sink: Sink) -> None:
    """One request that was answered while nobody looked, and whose deadline is over."""
    begun = time.monotonic()
    transport.submit(request(1, sink.url, timeout_ms=TIMEOUT_MS))
    while not sink.requests:
        assert not transport.poll(0.01)
    assert sink.let_go() == 1
    wait_until(lambda: time.monotonic() > begun + TIMEOUT_MS / 1000 + 0.05, 5, "the deadline over")


def test_an_answer_that_came_while_the_sender_stood_still_is_reported_after_the_deadline(
    transport: CurlTransport,
) -> None:
    with Sink(held=True) as sink:
        in_flight_and_answered(transport, sink)
        (outcome,) = collect(transport, 1)
    assert_answered(outcome)
    assert not transport.in_flight


def test_an_answer_that_had_come_is_reported_when_the_request_is_stopped(transport: CurlTransport) -> None:
    with Sink(held=True) as sink:
        in_flight_and_answered(transport, sink)
        (outcome,) = transport.abort([1])
    assert_answered(outcome)
    assert not outcome.evidence.aborted
    assert not transport.in_flight
    assert not transport.poll(0.01)


def test_an_answer_is_reported_when_the_sender_stood_still_just_before_it_waited(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sink(held=True) as sink:
        begun = time.monotonic()
        transport.submit(request(1, sink.url, timeout_ms=TIMEOUT_MS))
        while not sink.requests:
            assert not transport.poll(0.01)
        wait = transport._readiness.wait

        def stand_still(seconds: float) -> object:
            monkeypatch.undo()
            assert sink.let_go() == 1
            wait_until(lambda: time.monotonic() > begun + TIMEOUT_MS / 1000 + 0.05, 5, "the deadline over")
            return wait(seconds)

        monkeypatch.setattr(transport._readiness, "wait", stand_still)
        (outcome,) = collect(transport, 1)
    assert_answered(outcome)
    assert not transport.in_flight


def test_silence_past_the_deadline_ends_it_and_the_handle_serves_the_next_request(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(hang=True))
        transport.submit(request(1, receiver.url, timeout_ms=TIMEOUT_MS))
        (silent,) = collect(transport, 1)
        transport.submit(request(2, receiver.url))
        (answered,) = collect(transport, 1)
        assert len(receiver.requests) == 2
    assert silent.verdict == UNKNOWN
    assert silent.error.startswith("No complete answer after ")
    assert_answered(answered)


def assert_answered(outcome: Outcome) -> None:
    assert (outcome.verdict, outcome.http_status, outcome.error) == (ANSWERED, 200, "")
