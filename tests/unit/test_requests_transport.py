"""The transport of threads: its bound, waking, names, processes and descriptors.

What each way to end on the wire proves is shown for both transports by `tests/conformance`.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport.base import ForkedTransport, Outcome
from deliveries.transport.requests import RequestsTransport
from tests.receiver import Answer, Receiver
from tests.support.sink import Sink
from tests.support.waiting import wait_until
from tests.transports import BODY, HEADERS, LOOPBACK, collect, request, send, until_closed

OVERDUE = "Its time was over before it was sent."


@pytest.fixture
def transport() -> Iterator[RequestsTransport]:
    transport = RequestsTransport(LOOPBACK)
    yield transport
    transport.close()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "relay-requests"]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# What is sent


def test_the_receiver_gets_exactly_the_request_that_was_given(transport: RequestsTransport) -> None:
    more = ("x-empty", ""), ("Accept-Encoding", "gzip")
    twice = ("X-Twice", "1"), ("x-twice", "2")
    with Receiver() as receiver:
        outcome = send(transport, receiver.url + "/a/../b?c=%7e&d=%C3%A9", headers=(*HEADERS, *more, *twice))
        assert send(transport, receiver.url + "?q", b"").evidence.request_complete
        assert receiver.connections == 2
    first, second = receiver.requests
    assert (first.method, first.path, first.body) == ("POST", "//a/../b?c=%7e&d=%C3%A9", BODY)
    assert first.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "user-agent": "Relay",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "webhook-id": "evt_1",
        "webhook-signature": "v1,AAAA",
        "x-empty": "",
        "x-twice": "2",  # the last of those that came
    }
    assert (second.path, second.headers["content-length"], second.body) == ("/?q", "0", b"")
    evidence = outcome.evidence
    assert (evidence.sends, evidence.body_bytes_written, evidence.reused) == (1, len(BODY), False)
    assert evidence.peer == f"127.0.0.1 {receiver.port}"


@pytest.mark.parametrize("body", [b"x", b"y" * 16384, b"z" * 65536, b"z" * 65537, bytes(range(256)) * 8000])
def test_a_body_of_any_size_arrives_byte_for_byte(transport: RequestsTransport, body: bytes) -> None:
    with Receiver() as receiver:
        outcome = send(transport, receiver.url, body)
        assert [received.body for received in receiver.requests] == [body]
    assert (outcome.verdict, outcome.evidence.body_bytes_written) == (ANSWERED, len(body))


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://127.0.0.1/", ("x-evil", "1\r\nX-Injected: 1")),
        ("http://127.0.0.1/", ("x-evil", "é")),
        ("http://127.0.0.1/", ("x evil", "1")),
        ("http://127.0.0.1/", ("Content-Length", "1")),
        ("file:///etc/passwd", ("x", "1")),
        ("http://user:pw@127.0.0.1/", ("x", "1")),
        ("", ("x", "1")),
    ],
)
def test_what_may_not_be_sent_is_reported_by_the_next_poll(
    transport: RequestsTransport, url: str, header: tuple[str, str]
) -> None:
    transport.submit(request(7, url, headers=(*HEADERS, header)))
    assert transport.in_flight == 1
    (outcome,) = transport.poll(0)
    assert (outcome.key, outcome.verdict, outcome.evidence.sends) == (7, NOT_SENT, 0)
    assert outcome.error.endswith(".")
    assert not threads()


def test_a_key_cannot_be_in_flight_twice(transport: RequestsTransport) -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(1, receiver.url))
        with pytest.raises(ValueError, match="in flight already"):
            transport.submit(request(1, receiver.url))
        transport.abort([1])
        assert transport.in_flight == 0


# Threads


def test_what_exceeds_the_threads_waits_its_turn_while_its_deadline_runs() -> None:
    transport = RequestsTransport(LOOPBACK, threads=3)
    with Sink(held=True) as sink:
        for key in range(8):
            # 5 waits longer than it may; 6 is stopped while it waits; 3, 4 and 7 get the threads of 0, 1 and 2
            transport.submit(request(key, sink.url, timeout_ms=400 if key == 5 else 10_000))
        sink.wait_for(3)
        assert (transport.in_flight, len(threads())) == (8, 3)
        (late,) = collect(transport, 1)
        assert (late.key, late.verdict, late.error, late.evidence.sends) == (5, NOT_SENT, OVERDUE, 0)
        assert late.evidence.elapsed_ms >= 400
        (stopped,) = transport.abort([6])
        assert (stopped.verdict, stopped.error) == (NOT_SENT, "Stopped by us before it was sent.")
        assert len(sink.requests) == 3
        sink.let_go()
        rest = {outcome.key: outcome.verdict for outcome in collect(transport, 6)}
        assert rest == dict.fromkeys((0, 1, 2, 3, 4, 7), ANSWERED)
        assert len(sink.requests) == 6
    transport.close()
    assert not threads()


def test_where_no_more_threads_can_be_started_those_that_there_are_have_to_do(
    transport: RequestsTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    allowed = 0

    def limited(thread: threading.Thread) -> None:
        if thread.name == "relay-requests" and len(threads()) >= allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with Sink() as sink:
        outcome = send(transport, sink.url)
        assert (outcome.verdict, outcome.error) == (NOT_SENT, "No thread could be started to send it.")
        allowed = 2
        for key in range(10):
            transport.submit(request(key, sink.url))
        assert len(threads()) == 2
        assert {outcome.verdict for outcome in collect(transport, 10)} == {ANSWERED}


def test_hundreds_at_once_are_each_answered_once(transport: RequestsTransport) -> None:
    with Sink() as sink:
        for key in range(600):
            transport.submit(request(key, sink.url, headers=(("webhook-id", str(key)),), timeout_ms=60_000))
        outcomes = collect(transport, 600, timeout=60)
        assert {outcome.key for outcome in outcomes} == set(range(600))
        assert {outcome.verdict for outcome in outcomes} == {ANSWERED}
        assert set(sink.events.values()) == {1}
        assert len(sink.requests) == 600
    assert len(threads()) <= 256


def test_closing_ends_every_thread_and_descriptor_and_a_later_use_starts_afresh() -> None:
    transport = RequestsTransport(LOOPBACK, look_up=lambda host: ("127.0.0.1",))
    before = descriptors()
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        for key in range(4):
            transport.submit(request(key, receiver.url))
        receiver.wait_for(4)
        transport.submit(request(9, f"http://slow.customer.com:{receiver.port}/"))
        assert len(threads()) >= 4
        transport.close()
        transport.close()
        assert not threads()
        assert transport.in_flight == 0
        receiver.answer = lambda _: Answer()
        assert send(transport, receiver.url).verdict == ANSWERED
        transport.close()
    wait_until(lambda: descriptors() <= before, 5, "every descriptor closed")


def test_a_transport_does_not_cross_a_fork(transport: RequestsTransport) -> None:
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
        assert send(transport, receiver.url).verdict == ANSWERED  # the child's close left the threads alone


def test_descriptors_beyond_1024_work_like_all_others(transport: RequestsTransport) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1100:
            held.append(os.dup(held[0]))
        with Receiver(lambda _: Answer(delay=0.05)) as receiver:
            for key in range(20):
                transport.submit(request(key, receiver.url))
            assert {outcome.verdict for outcome in collect(transport, 20)} == {ANSWERED}
    finally:
        for descriptor in held:
            os.close(descriptor)
        transport.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_descriptors_is_not_sent_and_says_so(transport: RequestsTransport) -> None:
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        until_closed(receiver)
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


# Waking


def test_poll_returns_early_when_its_wake_descriptor_is_readable(transport: RequestsTransport) -> None:
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


def test_an_answer_ends_an_idle_poll_at_once_also_when_there_is_a_wake_descriptor(transport: RequestsTransport) -> None:
    reading, writing = os.pipe()
    try:
        with Receiver(lambda _: Answer(delay=0.1)) as receiver:
            started = time.monotonic()
            transport.submit(request(1, receiver.url))
            outcomes: list[Outcome] = []
            while not outcomes and time.monotonic() < started + 20:
                outcomes = transport.poll(10.0, wake=reading)
            assert [outcome.verdict for outcome in outcomes] == [ANSWERED]
            assert 0.1 <= time.monotonic() - started < 5
    finally:
        os.close(reading)
        os.close(writing)


# Names and addresses


def test_a_name_is_looked_up_once_pinned_and_kept_in_the_host_header() -> None:
    asked: list[str] = []

    def look_up(host: str) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.9", "127.0.0.1")

    with Receiver() as receiver:
        transport = RequestsTransport(LOOPBACK, look_up=look_up)
        for key in range(20):
            transport.submit(request(key, f"http://Hooks.customer.com:{receiver.port}/"))
        assert {outcome.verdict for outcome in collect(transport, 20)} == {ANSWERED}  # at the second address
        assert transport._names.resolver.known("hooks.customer.com").addresses[0] == "127.0.0.1"  # type: ignore[union-attr]
        transport.close()
        assert {received.headers["host"] for received in receiver.requests} == {f"hooks.customer.com:{receiver.port}"}
    assert asked == ["hooks.customer.com"]


def test_slow_name_servers_delay_only_their_own_names_and_can_be_stopped() -> None:
    release = threading.Event()

    def look_up(host: str) -> tuple[str, ...]:
        if host.startswith("slow"):
            release.wait(20)
        return ("127.0.0.1",)

    with Receiver() as receiver:
        transport = RequestsTransport(LOOPBACK, look_up=look_up)
        for key in range(100, 140):
            url = f"http://slow{key}.customer.com:{receiver.port}/"
            transport.submit(request(key, url, connect_timeout_ms=1500))
        transport.submit(request(1, f"http://fast.customer.com:{receiver.port}/"))
        (first,) = collect(transport, 1)
        assert (first.key, first.verdict) == (1, ANSWERED)
        assert first.evidence.elapsed_ms < 1000
        (stopped,) = transport.abort([100])
        assert (stopped.verdict, stopped.error) == (NOT_SENT, "Stopped by us before it was sent.")
        slow = collect(transport, 39)
        assert {outcome.error for outcome in slow} == {"The host name was not resolved in time."}
        assert {outcome.verdict for outcome in slow} == {NOT_SENT}
        release.set()
        transport.close()


def test_a_policy_that_was_replaced_holds_from_then_on(transport: RequestsTransport) -> None:
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        transport.policy = EgressPolicy()
        outcome = send(transport, receiver.url)
        assert receiver.connections == 1
    assert (outcome.verdict, outcome.error) == (
        NOT_SENT,
        f"The address 127.0.0.1 port {receiver.port} may not be called.",
    )
