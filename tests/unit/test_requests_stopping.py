"""Stops and deadlines of the transport of threads: nothing is written after them, and what had come is heard."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Self

import psutil
import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Head, Target
from deliveries.transport.requests import RequestsTransport
from deliveries.transport.single import told
from deliveries.transport.single_sockets import PlainSocket, connected
from deliveries.transport.single_trace import LATE_READS, Stopped, Trace
from tests.receiver import Answer, Receiver
from tests.support.sink import Sink
from tests.support.waiting import wait_until
from tests.transports import BIG, LOOPBACK, closed_port, collect, request

TIMEOUT_MS = 400
DEADLINE_MS = 2_000
"""Of a sender that is stopped meanwhile."""


@pytest.fixture
def transport() -> Iterator[RequestsTransport]:
    transport = RequestsTransport(LOOPBACK)
    yield transport
    transport.close()


# Stopping


def test_stopping_reports_by_evidence_and_cuts_the_connection_at_once(transport: RequestsTransport) -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(1, receiver.url, timeout_ms=60_000))
        receiver.wait_for(1)
        transport.submit(request(2, f"http://127.0.0.1:{closed_port()}/"))
        began = time.monotonic()
        outcomes = {outcome.key: outcome for outcome in transport.abort([1, 3])}
        assert time.monotonic() - began < 2
        (connection,) = receiver._open
        connection.settimeout(5)
        assert connection.recv(1) == b""
    assert {key: outcome.verdict for key, outcome in outcomes.items()} == {1: UNKNOWN}
    assert outcomes[1].evidence.aborted
    assert outcomes[1].error == "Stopped by us while in flight."
    assert [outcome.key for outcome in collect(transport, 1)] == [2]


def test_what_was_stopped_in_the_middle_of_its_body_was_not_sent(transport: RequestsTransport) -> None:
    with Receiver(before_body=lambda _: Answer(hang=True), receive_buffer=65536) as receiver:
        transport.submit(request(1, receiver.url, BIG * 4))
        wait_until(lambda: transport._flights[1].trace.written > 200_000, 5, "some of the body written")
        (outcome,) = transport.abort([1])
        assert receiver.requests == []
    assert outcome.verdict == NOT_SENT
    assert 0 < outcome.evidence.body_bytes_written < len(BIG) * 4
    assert outcome.evidence.aborted


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_was_stopped_before_it_could_be_written_was_not_sent(transport: RequestsTransport, scheme: str) -> None:
    """While it connects to a full backlog, or shakes hands with a server that says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=0 if scheme == "http" else 10) as deaf:
        fillers = [socket.socket() for _ in range(4 if scheme == "http" else 0)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        transport.submit(request(1, f"{scheme}://127.0.0.1:{deaf.getsockname()[1]}/", timeout_ms=60_000))
        wait_until(lambda: transport._flights[1].trace._socket, 5, "a connection begun")
        began = time.monotonic()
        (outcome,) = transport.abort([1])
        assert time.monotonic() - began < 2
        for filler in fillers:
            filler.close()
    assert (outcome.verdict, outcome.error) == (NOT_SENT, "Stopped by us before it was sent.")
    assert outcome.evidence.bytes_offered == 0


def test_a_body_that_was_still_coming_at_a_stop_leaves_the_answer_as_it_is(transport: RequestsTransport) -> None:
    """Also when only the end of the connection would end it: that end is of our making."""
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\n\r\nsome of"))
        receiver.answer = lambda _: Answer(hang=True)
        transport.submit(request(1, receiver.url))
        wait_until(lambda: transport._flights[1].trace.head.status, 5, "a head read")
        (outcome,) = transport.abort([1])
    assert (outcome.verdict, outcome.http_status, outcome.body) == (ANSWERED, 200, b"some of")
    assert outcome.evidence.aborted
    assert outcome.error == "Stopped by us while in flight."


def test_an_answer_that_had_come_is_reported_when_the_request_is_stopped(transport: RequestsTransport) -> None:
    with Sink(held=True) as sink:
        transport.submit(request(1, sink.url))
        sink.wait_for(1)
        assert sink.let_go() == 1
        (outcome,) = transport.abort([1])
    assert (outcome.verdict, outcome.http_status, outcome.error) == (ANSWERED, 200, "")
    assert not outcome.evidence.aborted
    assert transport.in_flight == 0
    assert not transport.poll(0.01)


# A sender that stood still


SENDER = """
import sys, json
from deliveries.transport.requests import RequestsTransport
from tests.transports import LOOPBACK, request
transport = RequestsTransport(LOOPBACK)
count = int(sys.argv[3])
for key in range(count):
    transport.submit(request(key, sys.argv[1], b"x" * int(sys.argv[4]), timeout_ms=int(sys.argv[2])))
outcomes = []
while len(outcomes) < count:
    outcomes += transport.poll(10.0)
print(json.dumps([(one.verdict, one.http_status, one.error, one.evidence.elapsed_ms) for one in outcomes]))
"""


class Sender:
    """A process that sends `count` requests, and then prints what became of them. Its deadline runs from its start."""

    def __init__(self, url: str, count: int, body_bytes: int = 7) -> None:
        words = [url, str(DEADLINE_MS), str(count), str(body_bytes)]
        self._process = subprocess.Popen([sys.executable, "-c", SENDER, *words], stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._process.kill()
        self._process.communicate()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """From now on until its deadlines are over."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)
        state = psutil.Process(self._process.pid)
        wait_until(lambda: state.status() == psutil.STATUS_STOPPED, 5, "the sender stopped")
        yield
        wait_until(lambda: time.monotonic() > began + DEADLINE_MS / 1000 + 0.1, 10, "the deadlines over")
        self._process.send_signal(signal.SIGCONT)

    def said(self) -> list[tuple[str, int | None, str, int]]:
        """(verdict, status, error, milliseconds) of each."""
        output, _ = self._process.communicate(timeout=20)
        return [tuple(each) for each in json.loads(output)]


@pytest.mark.parametrize("answers", [True, False], ids=["answered meanwhile", "silent"])
def test_a_process_that_was_stopped_past_its_deadlines_reports_the_answers_that_had_come(*, answers: bool) -> None:
    with Sink(held=True) as sink, Sender(sink.url, 5) as sender:
        sink.wait_for(5)
        with sender.standing_still():
            if answers:
                assert sink.let_go() == 5
        said = sender.said()
        assert len(sink.requests) == 5
    expected = (ANSWERED, 200) if answers else (UNKNOWN, None)
    assert {(verdict, status) for verdict, status, _, _ in said} == {expected}
    assert all(elapsed > DEADLINE_MS for _, _, _, elapsed in said)
    assert all(not error if answers else error.startswith("No complete answer after") for _, _, error, _ in said)


def test_an_early_answer_that_came_while_the_sender_stood_still_is_heard_though_it_may_write_no_more(
    listener: socket.socket,
) -> None:
    """It can write again, but its deadline is over: the refusal lies in its socket."""
    with Sender(f"http://127.0.0.1:{listener.getsockname()[1]}/", 1, len(BIG) * 4) as sender:
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            assert connection.recv(5) == b"POST "
            with sender.standing_still():
                connection.sendall(b"HTTP/1.1 413 Too much\r\nContent-Length: 0\r\n\r\n")
                read = drained(connection)
            ((verdict, status, error, _),) = sender.said()
            assert drained(connection) == 0
    assert (verdict, status) == (NOT_SENT, 413)
    assert error == "The receiver answered 413 before the request was complete."
    assert read < len(BIG) * 4


def drained(connection: socket.socket) -> int:
    """Read what there is, until nothing comes for a moment or the other side ends; how much it was, in bytes."""
    count = 0
    while select.select([connection], [], [], 0.3)[0]:
        try:
            piece = len(connection.recv(1 << 20))
        except ConnectionResetError:
            break
        if not piece:
            break
        count += piece
    return count


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def open_to(listener: socket.socket, seconds: float = 5.0) -> tuple[Trace, PlainSocket, socket.socket]:
    """A trace, its socket, and the other end of it."""
    now = time.monotonic()
    target = Target(plain=True, host="127.0.0.1", port=listener.getsockname()[1], numeric=True)
    trace = Trace(
        target,
        ("127.0.0.1",),
        policy=LOOPBACK,
        started=now,
        deadline=now + seconds,
        connect_s=5,
        body_bytes=1,
        ca_file="",
    )
    made = connected(trace)
    assert isinstance(made, PlainSocket)
    return trace, made, listener.accept()[0]


def test_what_has_come_by_the_deadline_is_read_after_it_and_nothing_is_waited_for(listener: socket.socket) -> None:
    trace, made, other = open_to(listener)
    with made, other:
        other.sendall(b"answer")
        assert select.select([made], [], [], 5)[0]
        trace.deadline = time.monotonic()
        buffer = bytearray(100)
        assert made.recv_into(buffer) == 6
        with pytest.raises(TimeoutError):
            made.recv_into(buffer)


def test_an_answer_that_drips_beyond_the_deadline_is_not_read_for_ever(listener: socket.socket) -> None:
    trace, made, other = open_to(listener)
    with made, other:
        trace.deadline = time.monotonic()
        buffer = bytearray(1)
        other.sendall(b"x" * (LATE_READS + 1))
        assert select.select([made], [], [], 5)[0]
        assert sum(made.recv_into(buffer) for _ in range(LATE_READS)) == LATE_READS
        with pytest.raises(TimeoutError):
            made.recv_into(buffer)


@pytest.mark.parametrize("how", ["deadline", "stop"])
def test_nothing_is_written_after_the_deadline_or_a_stop(listener: socket.socket, how: str) -> None:
    trace, made, other = open_to(listener)
    with made, other:
        assert made.write_some(memoryview(b"before")) == 6
        if how == "deadline":
            trace.deadline = time.monotonic()
        else:
            trace.stop()
        with pytest.raises(TimeoutError if how == "deadline" else Stopped):
            made.write_some(memoryview(b"after"))
        made.close()
        other.settimeout(5)
        assert other.recv(100) == b"before"
        assert other.recv(100) == b""
    assert (trace.offered, trace.written) == (6, 6)


def test_a_stop_that_came_after_the_whole_answer_changes_nothing(listener: socket.socket) -> None:
    trace, made, other = open_to(listener)
    with made, other:
        trace.head_bytes = trace.sends = 1
        assert made.write_some(memoryview(b"hb")) == 2
        trace.head = Head(200, (), "")
        trace.stop()
    answer = told(trace)
    assert (answer.verdict, answer.status, answer.error, answer.evidence.aborted) == (ANSWERED, 200, "", False)


def test_silence_past_the_deadline_ends_it(transport: RequestsTransport) -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver:
        transport.submit(request(1, receiver.url, timeout_ms=TIMEOUT_MS))
        (silent,) = collect(transport, 1)
    assert silent.verdict == UNKNOWN
    assert silent.error.startswith("No complete answer after ")
    assert TIMEOUT_MS <= silent.evidence.elapsed_ms < TIMEOUT_MS + 1000


@pytest.mark.parametrize("raw", [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000, b"HTTP/1.1 100 Go\r\n\r\n" * 100])
def test_the_deadline_holds_against_a_slow_drip(transport: RequestsTransport, raw: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=raw, drip=0.02))
        transport.submit(request(1, receiver.url, timeout_ms=TIMEOUT_MS))
        (outcome,) = collect(transport, 1)
    assert outcome.verdict == UNKNOWN
    assert TIMEOUT_MS <= outcome.evidence.elapsed_ms < TIMEOUT_MS + 1000


def test_the_connect_limit_spans_the_handshake_too(transport: RequestsTransport) -> None:
    with Receiver(on_accept=lambda _: "hang") as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        transport.submit(request(1, url, timeout_ms=20_000, connect_timeout_ms=TIMEOUT_MS))
        (outcome,) = collect(transport, 1)
    assert (outcome.verdict, outcome.evidence.sends) == (NOT_SENT, 0)
    assert outcome.error.startswith("No connection after ")
    assert outcome.evidence.elapsed_ms < TIMEOUT_MS + 2000
