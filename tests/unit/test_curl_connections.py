"""Connections: used again without a second copy of a request, and only to addresses that may be called."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Outcome
from deliveries.transport.curl import CurlTransport
from tests.receiver import Answer, Receiver
from tests.transports import HEADERS, LOOPBACK, certificate, closed_port, request, send, until_closed


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    transport = CurlTransport(LOOPBACK)
    yield transport
    transport.close()


# Reused connections


def test_a_receiver_that_closes_silently_gets_exactly_one_request_per_reported_answer(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        served = iter(range(1, 10_000))
        receiver.answer = lambda _: Answer(204, close=next(served) % 7 == 0)
        resubmitted = unknown = answered = 0
        for _ in range(560):
            outcome = send(transport, receiver.url)
            answered += outcome.verdict == ANSWERED
            unknown += outcome.verdict == UNKNOWN
            resubmitted += outcome.evidence.resubmitted
            assert outcome.verdict != NOT_SENT
        # A close that crosses the request on the wire is unknown, and may or may not have been read.
        assert answered <= len(receiver.requests) <= answered + unknown
        assert answered >= 540
        assert resubmitted > 0


def test_many_requests_at_once_to_a_receiver_that_dies_often_are_never_duplicated(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        lock, seen = threading.Lock(), [0]

        def answer(_: object) -> Answer:
            with lock:
                seen[0] += 1
                number = seen[0]
            return Answer(204, close=number % 7 == 0, close_before_answer=number % 31 == 0)

        receiver.answer = answer
        outcomes: dict[int, Outcome] = {}
        following = 0
        while len(outcomes) < 1000:
            while following < 1000 and transport.in_flight < 24:
                transport.submit(request(following, receiver.url, headers=(*HEADERS, ("x-key", str(following)))))
                following += 1
            for outcome in transport.poll(5.0):
                outcomes[outcome.key] = outcome
        copies: dict[int, int] = {}
        for received in receiver.requests:
            copies[int(received.headers["x-key"])] = copies.get(int(received.headers["x-key"]), 0) + 1
    assert set(copies.values()) == {1}
    for key, outcome in outcomes.items():
        expected = {ANSWERED: {1}, NOT_SENT: {0}, UNKNOWN: {0, 1}}[outcome.verdict]
        assert copies.get(key, 0) in expected


@pytest.mark.parametrize("ending", [Answer(204, close=True), Answer(204, reset=True)], ids=["fin", "rst"])
def test_a_connection_that_died_is_left_for_a_fresh_one_within_the_attempt(
    transport: CurlTransport, ending: Answer
) -> None:
    with Receiver() as receiver:
        receiver.answers.append(ending)
        send(transport, receiver.url)
        until_closed(receiver)
        outcome = send(transport, receiver.url)
        assert (outcome.verdict, outcome.evidence.reused) == (ANSWERED, False)
        assert len(receiver.requests) == 2


def test_a_stale_answer_in_a_reused_connection_is_not_taken_for_the_answer(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        good = b"HTTP/1.1 204 OK\r\n\r\n"
        late = threading.Event()
        receiver.answers.append(Answer(raw=good))
        send(transport, receiver.url)
        (connection,) = receiver._open
        connection.sendall(b"HTTP/1.1 418 Stale\r\nContent-Length: 0\r\n\r\n")
        late.set()
        outcome = send(transport, receiver.url)
        assert (outcome.verdict, outcome.http_status) == (ANSWERED, 200)
        assert outcome.evidence.resubmitted
        assert len(receiver.requests) == 2


class Cutter:
    """Takes one connection at a time and cuts it at a scripted byte; knows how many complete requests it has read."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.complete = 0
        self.script: list[tuple[float, bytes, bool]] = []  # share of the request to read, what to say, RST
        self.done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            try:
                self._converse(connection)
            except OSError:
                continue  # it was cut from the other side
            finally:
                connection.close()
                self.done.set()

    def _converse(self, connection: socket.socket) -> None:
        while self.script:
            share, says, reset = self.script.pop(0)
            data = b""
            wanted = 1 << 30
            while len(data) < wanted * share:
                piece = connection.recv(65536)
                if not piece:
                    return
                data += piece
                head, found, _ = data.partition(b"\r\n\r\n")
                if found:
                    length = int(head.lower().rpartition(b"content-length: ")[2].split(b"\r\n")[0])
                    wanted = len(head) + 4 + length
            self.complete += len(data) >= wanted
            connection.sendall(says)
            if not self.script:
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return


@pytest.mark.parametrize("seed", range(4))
def test_cut_at_any_byte_a_delivered_request_is_never_called_not_sent(transport: CurlTransport, seed: int) -> None:
    rng = random.Random(seed)
    full = b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 2\r\n\r\nok"
    cutter = Cutter()
    for _ in range(60):
        body = b"b" * rng.choice([1, 7, 500, 16_384, 100_000, 300_000])
        cutter.script = [(1.0, full, False)] if rng.random() < 0.5 else []
        warmed = len(cutter.script)
        share = rng.choice([0.0, 0.00001, 0.5, 0.99, 1.0, 1.0])
        says = full[: rng.choice([0, 0, 5, 12, 17, 24, len(full)])]
        cutter.script.append((share, says, rng.random() < 0.5))
        cutter.complete = 0
        cutter.done.clear()
        if warmed:
            assert send(transport, cutter.url).verdict == ANSWERED
        outcome = send(transport, cutter.url, body)
        assert cutter.done.wait(10)
        copies = cutter.complete - warmed
        assert copies <= 1
        assert copies == 0 or outcome.verdict != NOT_SENT, outcome
        if outcome.verdict == ANSWERED:
            assert says == full or b"\r\n\r\n" in says
    cutter.listener.close()


# TLS


def test_over_tls_connections_are_reused_and_silent_closes_cost_nothing(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        transport = CurlTransport(LOOPBACK, ca_file=trusted, look_up=lambda host: ("127.0.0.1",))
        url = f"https://hooks.customer.com:{receiver.port}/"
        served = iter(range(1, 1000))
        receiver.answer = lambda _: Answer(204, close=next(served) % 7 == 0)
        outcomes = [send(transport, url) for _ in range(70)]
        transport.close()
        answered = sum(outcome.verdict == ANSWERED for outcome in outcomes)
        unknown = sum(outcome.verdict == UNKNOWN for outcome in outcomes)
        assert answered <= len(receiver.requests) <= answered + unknown
        assert answered >= 65
        assert receiver.connections < 20


def test_a_certificate_for_another_name_or_of_an_unknown_issuer_is_not_sent(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "other.customer.com")
    with Receiver(tls=context) as receiver:
        for ca_file in (trusted, None):
            transport = CurlTransport(LOOPBACK, ca_file=ca_file, look_up=lambda host: ("127.0.0.1",))
            outcome = send(transport, f"https://hooks.customer.com:{receiver.port}/")
            transport.close()
            assert outcome.verdict == NOT_SENT
            assert outcome.error.startswith("The receiver's certificate was not accepted:")
        assert receiver.requests == []


def test_plain_http_behind_an_https_url_is_not_sent(transport: CurlTransport) -> None:
    with Receiver(lambda _: Answer(400)) as receiver:
        outcome = send(transport, f"https://127.0.0.1:{receiver.port}/", timeout_ms=1000)
    assert (outcome.verdict, outcome.evidence.sends) == (NOT_SENT, 0)


# Egress


def test_an_address_that_the_policy_refuses_is_never_connected_to() -> None:
    with Receiver() as receiver:
        strict = CurlTransport(EgressPolicy())
        for url in (receiver.url, f"http://localhost:{receiver.port}/", f"http://[::ffff:127.0.0.1]:{receiver.port}/"):
            outcome = send(strict, url)
            assert (outcome.verdict, outcome.evidence.bytes_offered) == (NOT_SENT, 0)
            assert outcome.error.endswith("may not be called.")
        strict.close()
        assert receiver.connections == 0


def test_an_open_connection_is_no_way_around_a_stricter_policy(transport: CurlTransport) -> None:
    class ChangesItsMind(EgressPolicy):
        """Refuses at the moment of sending what it allowed when the request was submitted."""

        __slots__ = ("asked",)

        def __init__(self) -> None:
            super().__init__(allow=LOOPBACK.allow)
            self.asked = 0

        def allows(self, address: str, port: int, *, plain: bool = False) -> bool:
            self.asked += 1
            return self.asked == 1

    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
        transport.policy = ChangesItsMind()
        outcome = send(transport, receiver.url)
        assert outcome.evidence.reused
        assert (outcome.verdict, outcome.evidence.bytes_offered) == (NOT_SENT, 0)
        assert outcome.error.endswith("may not be called.")
        assert len(receiver.requests) == 1
        transport.policy = LOOPBACK
        assert send(transport, receiver.url).verdict == ANSWERED


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_is_ignored(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{closed_port()}")
    with Receiver() as receiver:
        assert send(transport, receiver.url).verdict == ANSWERED
