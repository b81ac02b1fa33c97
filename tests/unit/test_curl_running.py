"""Requests that may not be sent; stopping, waking, processes and descriptors."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import ForkedTransport, Outcome
from deliveries.transport.curl import IDLE_CONNECTIONS, CurlTransport
from tests.receiver import Answer, Receiver
from tests.support.sink import Sink
from tests.support.waiting import wait_until
from tests.transports import HEADERS, LOOPBACK, collect, request, send, until_closed


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    transport = CurlTransport(LOOPBACK)
    yield transport
    transport.close()


# Requests that may not be sent


@pytest.mark.parametrize(
    "header",
    [
        ("x-evil", "1\r\nX-Injected: 1"),
        ("x-evil", "1\nX-Injected: 1"),
        ("x-evil", "1\0"),
        ("x-evil", "é"),
        ("x-evil\r\nX-Injected", "1"),
        ("x evil", "1"),
        ("x-evil:", "1"),
        ("", "1"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "other"),
        ("Expect", "100-continue"),
        ("Connection", "close"),
    ],
)
def test_a_header_that_could_change_the_request_is_refused(transport: CurlTransport, header: tuple[str, str]) -> None:
    with Receiver() as receiver:
        outcome = send(transport, receiver.url, headers=(*HEADERS, header))
        assert (outcome.verdict, receiver.connections) == (NOT_SENT, 0)
    assert "header" in outcome.error


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1/", "127.0.0.1", "http://user:pw@127.0.0.1/", "http://1\r\n/", ""]
)
def test_a_url_that_is_not_plain_http_or_https_is_refused(transport: CurlTransport, url: str) -> None:
    assert send(transport, url).verdict == NOT_SENT


def test_a_key_cannot_be_in_flight_twice(transport: CurlTransport) -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(1, receiver.url))
        with pytest.raises(ValueError, match="in flight already"):
            transport.submit(request(1, receiver.url))
        transport.abort([1])


# Stopping, waking, processes


def test_aborting_reports_by_evidence(transport: CurlTransport) -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(1, receiver.url))
        while not receiver.requests:
            assert transport.poll(0.01) == []
        transport.submit(request(2, receiver.url))
        outcomes = {outcome.key: outcome for outcome in transport.abort([1, 2, 3])}
    assert {key: outcome.verdict for key, outcome in outcomes.items()} == {1: UNKNOWN, 2: NOT_SENT}
    assert all(outcome.evidence.aborted for outcome in outcomes.values())
    assert outcomes[2].error == "Stopped by us before it was sent."
    assert transport.in_flight == 0


def test_an_aborted_handle_is_good_for_the_next_request(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        for key in range(5):
            receiver.answers.append(Answer(hang=True))
            transport.submit(request(key, receiver.url))
            before = len(receiver.requests)
            while len(receiver.requests) == before:
                transport.poll(0.01)
            transport.abort([key])
            assert send(transport, receiver.url).verdict == ANSWERED


def test_poll_returns_early_when_its_wake_descriptor_is_readable(transport: CurlTransport) -> None:
    reading, writing = os.pipe()
    try:
        started = time.monotonic()
        threading.Timer(0.1, os.write, (writing, b"x")).start()
        assert transport.poll(10.0, wake=reading) == []
        assert 0.05 < time.monotonic() - started < 5
        os.read(reading, 1)
        started = time.monotonic()
        assert transport.poll(0.1, wake=reading) == []
        assert time.monotonic() - started >= 0.09
        os.write(writing, b"x")
        started = time.monotonic()
        assert transport.poll(0.1) == []  # without it, it is not watched
        assert time.monotonic() - started >= 0.09
    finally:
        os.close(reading)
        os.close(writing)


def test_an_idle_poll_takes_its_time_and_an_answer_ends_it_at_once(transport: CurlTransport) -> None:
    with Receiver(lambda _: Answer(delay=0.1)) as receiver:
        started = time.monotonic()
        transport.submit(request(1, receiver.url))
        until = started + 10
        outcomes: list[Outcome] = []
        while not outcomes and time.monotonic() < until:
            outcomes = transport.poll(10.0)
        assert len(outcomes) == 1
        assert 0.1 <= time.monotonic() - started < 5


def test_the_deadline_holds_against_a_slow_drip(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000, drip=0.02))
        outcome = send(transport, receiver.url, timeout_ms=400)
    assert outcome.verdict == UNKNOWN
    assert 390 <= outcome.evidence.elapsed_ms < 1500


def test_what_has_ended_is_not_remembered_while_one_request_takes_long(transport: CurlTransport) -> None:
    with Sink() as sink, Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(0, receiver.url, timeout_ms=60_000))
        for begin in range(1, 4001, 100):
            for key in range(begin, begin + 100):
                transport.submit(request(key, sink.url, timeout_ms=60_000))
            collect(transport, 100)
        assert len(transport._deadlines._heap) < 1500
        transport.abort([0])


def test_connections_are_reused_while_many_others_are_in_use_and_few_are_kept_afterwards(
    transport: CurlTransport,
) -> None:
    many = IDLE_CONNECTIONS * 3
    with Sink() as sink, Sink(held=True) as slow:
        for key in range(1, many + 1):
            transport.submit(request(key, slow.url, timeout_ms=60_000))
            transport.poll(0.0)
        until = time.monotonic() + 20
        while len(slow.requests) < many:
            assert time.monotonic() < until
            transport.poll(0.01)
        for reused in (False, True, True):
            transport.submit(request(0, sink.url))
            (outcome,) = collect(transport, 1)
            assert outcome.evidence.reused == reused
        slow.let_go()
        assert {outcome.verdict for outcome in collect(transport, many)} == {ANSWERED}
        wait_until(
            lambda: len(slow.connections) <= IDLE_CONNECTIONS * 2 or transport.poll(0.01),
            10,
            "what is not kept closed",
        )
        assert send(transport, slow.url).evidence.reused


def test_a_transport_does_not_cross_a_fork(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                transport.submit(request(1, receiver.url))
                os.write(write_end, b"used")
            except ForkedTransport:
                transport.close()
                os.write(write_end, b"refused")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        said = os.read(read_end, 100)
        os.close(read_end)
        os.close(write_end)
        assert said == b"refused"
        assert send(transport, receiver.url).evidence.reused  # the child's close left the connection alone


def test_a_closed_transport_starts_afresh(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        transport.close()
        transport.close()
        assert not send(transport, receiver.url).evidence.reused


def test_descriptors_beyond_1024_work_like_all_others(transport: CurlTransport) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1100:
            held.append(os.dup(held[0]))
        with Receiver(lambda _: Answer(delay=0.05)) as receiver:
            started = time.monotonic()
            for key in range(50):
                transport.submit(request(key, receiver.url))
            assert {outcome.verdict for outcome in collect(transport, 50)} == {ANSWERED}
            assert time.monotonic() - started < 3
    finally:
        for descriptor in held:
            os.close(descriptor)
        transport.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_descriptors_is_not_sent_and_says_so(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert transport.poll(0) == []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as probe:
            lowest = probe.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            outcome = send(transport, receiver.url)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome.verdict == NOT_SENT
    assert outcome.error == "No socket could be made: Too many open files."


def test_a_connection_that_lives_on_in_a_forked_process_does_not_keep_poll_busy(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        ours, its = socket.socketpair()
        child = os.fork()
        if child == 0:
            for connection in list(receiver._open):  # so that the receiver's end closes when the receiver closes it
                os.close(connection.fileno())
            its.send(b"ready")
            ours.close()
            its.recv(1)
            os._exit(0)
        its.close()
        try:
            ours.settimeout(10)
            assert ours.recv(5) == b"ready"
            receiver.answers.append(Answer(204, close=True))
            assert send(transport, receiver.url).evidence.reused
            until_closed(receiver)
            assert send(transport, receiver.url).verdict == ANSWERED
            before = time.process_time()
            started = time.monotonic()
            assert transport.poll(0.5) == []
            assert time.monotonic() - started >= 0.49
            assert time.process_time() - before < 0.2
        finally:
            ours.close()
            os.waitpid(child, 0)
