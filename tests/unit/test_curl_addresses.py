"""A name with several addresses: how the time is shared among them, and what is remembered. Both transports alike."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pycurl
import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport.base import PUBLIC, target_of
from deliveries.transport.curl import CurlTransport
from deliveries.transport.requests import RequestsTransport
from tests.receiver import Receiver
from tests.transports import LOOPBACK, certificate, closed_port, request, send

Either = CurlTransport | RequestsTransport
Make = Callable[..., Either]
HOST = "two.customer.com"


@pytest.fixture(params=[CurlTransport, RequestsTransport], ids=["curl", "requests"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a transport for which every name has the given addresses."""
    with ExitStack() as scope:

        def of(*addresses: str, ca_file: str | None = None) -> Either:
            made: Either = request.param(LOOPBACK, ca_file=ca_file, look_up=lambda _: addresses)
            scope.callback(made.close)
            return made

        yield of


@contextmanager
def deaf(port: int, address: str = "127.0.0.2") -> Iterator[None]:
    """Whoever knocks at this port hears nothing: a full backlog drops it."""
    with ExitStack() as scope:
        listener = scope.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            knocking = scope.enter_context(socket.socket())
            knocking.setblocking(False)
            knocking.connect_ex((address, port))
        yield


def order(transport: Either) -> tuple[str, ...]:
    answer = transport._names.resolver.known(HOST)
    assert answer is not None
    return answer.addresses


def test_an_address_that_does_not_answer_leads_to_the_next_and_is_tried_last_from_then_on(make: Make) -> None:
    with Receiver() as receiver, deaf(receiver.port):
        transport = make("127.0.0.2", "127.0.0.1")
        outcome = send(transport, f"http://{HOST}:{receiver.port}/", connect_timeout_ms=200, timeout_ms=10_000)
        assert (outcome.verdict, outcome.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")
        assert len(receiver.requests) == 1
    assert order(transport) == ("127.0.0.1", "127.0.0.2")


def test_an_address_that_does_not_answer_leaves_time_for_the_next_however_long_it_may_take(make: Make) -> None:
    with Receiver() as receiver, deaf(receiver.port), deaf(receiver.port, "127.0.0.3"):
        transport = make("127.0.0.2", "127.0.0.3", "127.0.0.1")
        outcome = send(transport, f"http://{HOST}:{receiver.port}/", connect_timeout_ms=60_000, timeout_ms=3_200)
    assert (outcome.verdict, outcome.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")
    assert outcome.evidence.elapsed_ms >= 2_300  # half of the time, and half of the rest
    assert order(transport) == ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def test_an_address_that_took_all_the_time_that_was_left_is_tried_last_from_then_on(make: Make) -> None:
    port = closed_port()
    with deaf(port):
        transport = make("127.0.0.3", "127.0.0.2")  # the first refuses
        outcome = send(transport, f"http://{HOST}:{port}/", timeout_ms=300)
    assert outcome.verdict == NOT_SENT
    assert outcome.error.startswith("No connection after")
    assert order(transport) == ("127.0.0.3", "127.0.0.2")


def test_an_address_that_says_nothing_in_the_tls_handshake_leads_to_the_next(make: Make, tmp_path: Path) -> None:
    tls, trusted = certificate(tmp_path, HOST)
    with Receiver(tls=tls) as receiver, socket.create_server(("127.0.0.2", receiver.port)):
        transport = make("127.0.0.2", "127.0.0.1", ca_file=trusted)
        outcome = send(transport, f"https://{HOST}:{receiver.port}/", connect_timeout_ms=1_500, timeout_ms=10_000)
        assert len(receiver.requests) == 1
    assert (outcome.verdict, outcome.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")
    assert order(transport) == ("127.0.0.1", "127.0.0.2")


def test_an_address_whose_certificate_is_not_accepted_leads_nowhere(make: Make, tmp_path: Path) -> None:
    tls, _ = certificate(tmp_path, "other.customer.com")
    _, trusted = certificate(tmp_path, HOST)
    with Receiver(tls=tls) as receiver:
        transport = make("127.0.0.1", "127.0.0.2", ca_file=trusted)
        outcome = send(transport, f"https://{HOST}:{receiver.port}/")
        assert receiver.connections == 1
    assert (outcome.verdict, outcome.error[:25]) == (NOT_SENT, "The receiver's certificat")
    assert order(transport) == ("127.0.0.1", "127.0.0.2")


def test_what_was_begun_twice_is_never_sent_again_whatever_else_is_known_of_it() -> None:
    transport = CurlTransport(LOOPBACK)
    transport.poll(0)
    url = f"http://127.0.0.1:{closed_port()}/"
    handle = transport._handle(PUBLIC)
    handle.take(request(1, url), target_of(url), [], addresses=("127.0.0.1",), policy=LOOPBACK, started=float("inf"))
    handle.begin(fresh=False)
    handle.reused, handle.sends = True, 2
    assert not transport._again(handle, pycurl.E_SEND_ERROR)
    handle.sends = 1
    assert transport._again(handle, pycurl.E_SEND_ERROR)
    transport._multi.remove_handle(handle.curl)
    transport.close()
