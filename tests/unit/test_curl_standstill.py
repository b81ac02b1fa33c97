"""A sender that stood still past its deadline: what was answered meanwhile lies in its sockets, and is not dropped."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pycurl
import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Outcome
from deliveries.transport.curl import CurlTransport
from deliveries.transport.curl_handle import Handle
from tests.receiver import Answer, Receiver
from tests.support.sink import OK, Sink, reserve
from tests.support.waiting import wait_until
from tests.transports import BIG, BODY, LOOPBACK, collect, request

TIMEOUT_MS = 300
SIZE_UPLOAD: int = pycurl.SIZE_UPLOAD_T


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
    until_over(begun)


def until_over(begun: float) -> None:
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
            until_over(begun)
            return wait(seconds)

        monkeypatch.setattr(transport._readiness, "wait", stand_still)
        (outcome,) = collect(transport, 1)
    assert_answered(outcome)
    assert not transport.in_flight


def test_an_answer_is_reported_when_the_sender_stood_still_inside_of_libcurl(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the bytes leave, so that libcurl's next step is to look whether the time is over."""
    begun = time.monotonic()
    read = Handle._on_read

    def stand_still(handle: Handle, size: int) -> object:
        data = read(handle, size)
        until_over(begun)
        return data

    monkeypatch.setattr(Handle, "_on_read", stand_still)
    with reserve() as listener, ThreadPoolExecutor(1) as beside:
        listener.listen()
        transport.submit(request(1, f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_ms=TIMEOUT_MS))
        answered = beside.submit(answer_unasked, listener)
        (outcome,) = collect(transport, 1)
        answered.result(5).close()
    assert_answered(outcome)


def answer_unasked(listener: socket.socket) -> socket.socket:
    """Answer a request that has not come yet."""
    connection, _ = listener.accept()
    connection.sendall(OK)
    return connection


def test_of_more_answers_than_are_taken_in_one_turn_none_is_dropped(transport: CurlTransport) -> None:
    count = 1500
    with Sink(held=True) as sink:
        for key in range(count):
            transport.submit(request(key, sink.url, timeout_ms=60_000))
        while len(sink.requests) < count:
            assert not transport.poll(0.01)
        assert sink.let_go() == count
        outcomes = transport.abort(range(count))
    assert len(outcomes) == count
    assert {outcome.verdict for outcome in outcomes} == {ANSWERED}


# Nothing is sent past the deadline


def connected_and_not_noticed(transport: CurlTransport, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is made; the sender does not know it yet, and so has sent nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(transport._readiness, "wait", lambda seconds: ([], []))
        while not sink.connections:
            assert not transport.poll(0.0)


@pytest.mark.parametrize("body", [BODY, b""], ids=["body", "empty"])
def test_what_was_not_sent_in_time_is_not_sent_any_more(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """It stands still between its look at the deadlines and its look at the connections."""
    with Sink() as sink:
        begun = time.monotonic()
        transport.submit(request(1, sink.url, body, timeout_ms=TIMEOUT_MS))
        connected_and_not_noticed(transport, sink, monkeypatch)
        wait = transport._readiness.wait

        def stand_still(seconds: float) -> object:
            monkeypatch.undo()
            until_over(begun)
            return wait(seconds)

        monkeypatch.setattr(transport._readiness, "wait", stand_still)
        (outcome,) = collect(transport, 1)
        assert (outcome.verdict, outcome.error) == (NOT_SENT, "Its time was over before it was sent.")
        assert outcome.evidence.bytes_offered == 0
        assert_only_the_next_arrives(transport, sink)


def test_what_was_not_sent_is_not_sent_when_the_sender_stood_still_inside_of_libcurl(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the connection was judged, before its first byte is asked for."""
    with Sink() as sink:
        begun = time.monotonic()
        judge = Handle._on_prereq

        def stand_still(handle: Handle, *ends: object) -> int:
            verdict = judge(handle, *ends)  # type: ignore[arg-type]
            until_over(begun)
            return verdict

        with monkeypatch.context() as patch:
            patch.setattr(Handle, "_on_prereq", stand_still)
            transport.submit(request(1, sink.url, timeout_ms=TIMEOUT_MS))
            (outcome,) = collect(transport, 1)
        transport.close()  # its handles remember what was patched
        assert (outcome.verdict, outcome.error) == (NOT_SENT, "Its time was over before it was sent.")
        assert outcome.evidence.bytes_offered == 0
        assert_only_the_next_arrives(transport, sink)


@pytest.mark.parametrize("stopped", [False, True], ids=["its time was over", "it was stopped"])
def test_a_connection_that_was_made_meanwhile_is_not_sent_on(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    with Sink() as sink:
        begun = time.monotonic()
        transport.submit(request(1, sink.url, timeout_ms=60_000 if stopped else TIMEOUT_MS))
        connected_and_not_noticed(transport, sink, monkeypatch)
        if not stopped:
            until_over(begun)
        (outcome,) = transport.abort([1]) if stopped else collect(transport, 1)
        assert (outcome.verdict, outcome.evidence.bytes_offered) == (NOT_SENT, 0)
        assert outcome.error.startswith("Stopped by us before it was sent." if stopped else "No connection after ")
        assert_only_the_next_arrives(transport, sink)


@pytest.mark.parametrize("stopped", [False, True], ids=["its time was over", "it was stopped"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 413 Too long\r\nContent-Length: 0\r\n\r\n"], ids=["silent", "413"])
def test_the_rest_of_a_body_is_not_sent_and_an_early_answer_is_heard(
    transport: CurlTransport, stopped: bool, answer: bytes
) -> None:
    with reserve() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listener.listen()
        begun = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        transport.submit(request(1, url, BIG, timeout_ms=60_000 if stopped else TIMEOUT_MS))
        connection = None
        while connection is None or transport._flights[1].curl.getinfo(SIZE_UPLOAD) == 0:
            assert not transport.poll(0.02)
            connection = connection or listener.accept()[0]
        assert not transport.poll(0.05)
        until_over(begun)
        before = transport._flights[1].curl.getinfo(SIZE_UPLOAD)
        assert 0 < before < len(BIG)
        connection.settimeout(5)
        received = len(connection.recv(1 << 20))  # there is room for more
        connection.sendall(answer)
        (outcome,) = transport.abort([1]) if stopped else collect(transport, 1)
        while piece := connection.recv(1 << 20):
            received += len(piece)
        connection.close()
    assert outcome.evidence.body_bytes_written == before
    assert before < received < before + 1000  # the head is in it
    assert (outcome.verdict, outcome.http_status) == (NOT_SENT, 413 if answer else None)
    assert outcome.evidence.aborted == (stopped and not answer)
    if answer:
        assert outcome.error == "The receiver answered 413 before the request was complete."
    elif stopped:
        assert outcome.error == "Stopped by us while in flight."
    else:
        assert outcome.error == "Its time was over before the receiver had taken all of it."
    with Sink() as sink:
        assert_only_the_next_arrives(transport, sink)


def assert_only_the_next_arrives(transport: CurlTransport, sink: Sink) -> None:
    """The handle is good for the next request, and the one before never comes."""
    assert not transport.in_flight
    transport.submit(request(2, sink.url))
    assert_answered(*collect(transport, 1))
    assert len(sink.requests) == 1


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
