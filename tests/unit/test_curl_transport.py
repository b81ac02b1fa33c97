"""What each way to end on the wire proves, against real sockets on loopback."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import BODY_KEPT
from deliveries.transport.curl import CurlTransport
from tests.receiver import Answer, Receiver
from tests.transports import BIG, BODY, HEADERS, LOOPBACK, closed_port, send


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    transport = CurlTransport(LOOPBACK)
    yield transport
    transport.close()


# Answered


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 308, 401, 404, 407, 410, 429, 500, 503, 599, 999])
def test_a_complete_answer_is_answered_whatever_it_says(transport: CurlTransport, status: int) -> None:
    with Receiver(lambda _: Answer(status, (("Retry-After", "7"), ("Location", "/elsewhere")))) as receiver:
        outcome = send(transport, receiver.url)
        assert (outcome.verdict, outcome.http_status, outcome.error) == (ANSWERED, status, "")
        assert ("Retry-After", "7") in outcome.headers
        assert len(receiver.requests) == 1  # a redirect among them was not followed
    evidence = outcome.evidence
    assert evidence.request_complete
    assert evidence.head_complete
    assert evidence.body_bytes_written == len(BODY)
    assert evidence.peer == f"127.0.0.1 {receiver.port}"
    assert not evidence.reused
    assert evidence.as_json()["sends"] == 1


def test_the_receiver_gets_exactly_the_request_that_was_given(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        send(transport, receiver.url + "/a/../b?c=%7e&d=%C3%A9", headers=(*HEADERS, ("x-empty", "")))
    (received,) = receiver.requests
    assert (received.method, received.path, received.body) == ("POST", "//a/../b?c=%7e&d=%C3%A9", BODY)
    assert received.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "accept": "*/*",
        "user-agent": "Relay",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "webhook-id": "evt_1",
        "webhook-signature": "v1,AAAA",
        "x-empty": "",
    }


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 16384, b"z" * 16385, bytes(range(256)) * 8000])
def test_a_body_of_any_size_arrives_byte_for_byte_on_new_and_reused_connections(
    transport: CurlTransport, body: bytes
) -> None:
    with Receiver() as receiver:
        for _ in range(3):
            assert send(transport, receiver.url, body).verdict == ANSWERED
        assert [received.body for received in receiver.requests] == [body] * 3
        assert receiver.connections == (1 if body else 3)  # an empty body is never sent on a reused connection


def test_connections_are_reused(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert [send(transport, receiver.url).evidence.reused for _ in range(5)] == [False, True, True, True, True]
        assert receiver.connections == 1


@pytest.mark.parametrize(
    "before", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 2]
)
def test_informational_responses_before_the_final_one_are_passed_over(transport: CurlTransport, before: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=before + b"HTTP/1.1 202 OK\r\nX: final\r\nContent-Length: 0\r\n\r\n"))
        outcome = send(transport, receiver.url)
    assert (outcome.verdict, outcome.http_status) == (ANSWERED, 202)
    assert outcome.headers == (("X", "final"), ("Content-Length", "0"))


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\nshort",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nshort",
        b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ],
)
def test_a_broken_body_never_changes_what_was_answered(transport: CurlTransport, rest: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\n" + rest, close=True))
        outcome = send(transport, receiver.url)
    assert (outcome.verdict, outcome.http_status) == (ANSWERED, 200)
    assert outcome.error.startswith("The response body")


def test_a_body_that_does_not_end_before_the_deadline_never_changes_what_was_answered(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
        outcome = send(transport, receiver.url, timeout_ms=300)
    assert (outcome.verdict, outcome.http_status, outcome.body) == (ANSWERED, 200, b"half")
    assert "not complete after" in outcome.error


def test_of_a_long_body_16_kib_are_kept_and_reading_stops_at_256_kib(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(body=b"b" * 200_000))
        kept = send(transport, receiver.url)
        assert (kept.verdict, kept.body, kept.error) == (ANSWERED, b"b" * BODY_KEPT, "")
        receiver.answers.append(Answer(body=b"c" * 50_000_000))
        cut = send(transport, receiver.url)
        assert (cut.verdict, cut.http_status, cut.body) == (ANSWERED, 200, b"c" * BODY_KEPT)
        assert "longer than 256 KiB" in cut.error


def test_a_compressed_body_is_never_inflated(transport: CurlTransport) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with Receiver() as receiver:
        receiver.answers.append(Answer(headers=(("Content-Encoding", "gzip"),), body=bomb))
        outcome = send(transport, receiver.url)
    assert (outcome.verdict, outcome.body) == (ANSWERED, bomb[:BODY_KEPT])


# Proven not sent


def test_a_refused_connection_is_not_sent(transport: CurlTransport) -> None:
    outcome = send(transport, f"http://127.0.0.1:{closed_port()}/")
    assert (outcome.verdict, outcome.http_status) == (NOT_SENT, None)
    assert outcome.error == "The connection could not be made: Connection refused."
    assert outcome.evidence.bytes_offered == 0


def test_a_name_that_does_not_resolve_is_not_sent(transport: CurlTransport) -> None:
    outcome = send(transport, "http://nowhere.customer.invalid/", timeout_ms=10_000)
    assert outcome.verdict == NOT_SENT
    assert "host name" in outcome.error


def test_a_connection_that_takes_too_long_is_not_sent(transport: CurlTransport) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = []
        for _ in range(4):  # a full backlog drops what knocks
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
            fillers.append(filler)
        outcome = send(transport, f"http://127.0.0.1:{deaf.getsockname()[1]}/", connect_timeout_ms=300)
        for filler in fillers:
            filler.close()
    assert outcome.verdict == NOT_SENT
    assert outcome.error.startswith("No connection after")


def test_a_reset_while_the_body_is_half_sent_is_not_sent(transport: CurlTransport) -> None:
    with Receiver(before_body=lambda _: Answer(delay=0.1, reset_before_answer=True)) as receiver:
        outcome = send(transport, receiver.url, BIG)
        assert receiver.requests == []
    assert outcome.verdict == NOT_SENT
    assert 0 < outcome.evidence.body_bytes_written < len(BIG)


def test_a_receiver_that_stops_reading_has_not_been_sent_the_request(transport: CurlTransport) -> None:
    with Receiver(before_body=lambda _: Answer(hang=True), receive_buffer=65536) as receiver:
        outcome = send(transport, receiver.url, BIG * 4, timeout_ms=500)
        assert receiver.requests == []
    assert outcome.verdict == NOT_SENT
    assert outcome.error == "Its time was over before the receiver had taken all of it."


def test_a_refusal_before_the_body_was_complete_is_not_sent_and_keeps_its_status(transport: CurlTransport) -> None:
    with Receiver(before_body=lambda _: Answer(413)) as receiver:
        outcome = send(transport, receiver.url, BIG * 4)
        assert receiver.requests == []
    assert (outcome.verdict, outcome.http_status) == (NOT_SENT, 413)
    assert outcome.error == "The receiver answered 413 before the request was complete."


# Unknown


@pytest.mark.parametrize(
    "answer",
    [
        Answer(hang=True),
        Answer(close_before_answer=True),
        Answer(reset_before_answer=True),
        Answer(raw=b"HT", close=True),
        Answer(raw=b"HTTP/1.1 200", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: 1\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: 1\r\n", reset=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: 1\r\n"),
        Answer(raw=b"HTTP/1.1 100 Continue\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 103 Early Hints\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 2000 X\r\nContent-Length: 0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 20 X\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 099 X\r\n\r\n", close=True),
        Answer(raw=b"ICY 200 OK\r\n\r\n", close=True),
        Answer(raw=b"garbage\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"y" * 900) * 80 + b"\r\n", close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: %s\r\n\r\n" % (b"y" * 400_000), close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 20_000, close=True),
        Answer(raw=b"HTTP/1.1 103 Early\r\n\r\n" * 20_000, close=True),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", drip=0.1),
    ],
)
@pytest.mark.parametrize("before", [0, 1], ids=["fresh", "reused"])
def test_without_a_complete_head_nobody_can_say(transport: CurlTransport, answer: Answer, before: int) -> None:
    with Receiver() as receiver:
        for _ in range(before):
            assert send(transport, receiver.url).verdict == ANSWERED
        receiver.answers.append(answer)
        outcome = send(transport, receiver.url, timeout_ms=700)
        assert len(receiver.requests) == 1 + before  # and never a second copy
    assert (outcome.verdict, outcome.http_status) == (UNKNOWN, None)
    assert outcome.evidence.request_complete
    assert outcome.evidence.reused == bool(before)
    assert outcome.error.endswith(".")


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"X: 1\r\n" * 990, ""),
        (b"X: 1\r\n" * 1010, "The response had more than 1,000 header lines."),
        (b"X: %s\r\n" % (b"y" * 1000) * 64, ""),
        (b"X: %s\r\n" % (b"y" * 1000) * 66, "The response head was longer than 64 KiB."),
    ],
)
def test_a_response_head_has_at_most_64_kib_and_a_thousand_lines(
    transport: CurlTransport, head: bytes, error: str
) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + head + b"\r\n"))
        outcome = send(transport, receiver.url)
        assert (outcome.verdict, outcome.error) == (UNKNOWN if error else ANSWERED, error)
        assert send(transport, receiver.url).verdict == ANSWERED


def test_trailers_never_change_what_was_answered(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        trailers = b"X: %s\r\n" % (b"y" * 1000) * 90
        receiver.answers.append(
            Answer(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + trailers + b"\r\n")
        )
        outcome = send(transport, receiver.url)
    assert (outcome.verdict, outcome.http_status, outcome.body) == (ANSWERED, 200, b"ok")


def test_a_2xx_before_the_request_was_complete_is_unknown(transport: CurlTransport) -> None:
    with Receiver(before_body=lambda _: Answer(200, close=True), receive_buffer=65536) as receiver:
        outcome = send(transport, receiver.url, BIG)
        assert receiver.requests == []
    # Where the reset of the unread body overtakes the answer, nothing speaks of it: then it is only known to be cut.
    assert (outcome.verdict, outcome.http_status) in {(UNKNOWN, 200), (NOT_SENT, None)}
    assert not outcome.evidence.request_complete
    if outcome.http_status:
        assert outcome.error == "The receiver answered 200 before the request was complete."
