"""TLS of an endpoint's own through `requests`: what is shown, what is trusted, and that no key lies about."""

from __future__ import annotations

import os
import pty
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import certifi
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport import tls_context
from deliveries.transport.base import PUBLIC, Outcome, Refused, Tls, target_of
from deliveries.transport.requests import RequestsTransport
from deliveries.transport.single import fetch
from deliveries.transport.single_sockets import TlsSocket, connected
from deliveries.transport.single_trace import Trace
from deliveries.transport.tls_context import context_for
from tests.doorman import Authority, Doorman, key_pem
from tests.receiver import Answer, Received, Receiver
from tests.support.waiting import wait_until
from tests.transports import BIG, LOOPBACK, certificate, collect, request

SERVERS = Authority("Servers of a customer")
OTHERS = Authority("Another authority of the same name")
CLIENTS = Authority("Clients of a customer")
ANNA, BERT = (Tls(SERVERS.pem, *CLIENTS.issue(name)) for name in ("anna", "bert"))
GARBAGE = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
PAIR = "The client certificate and its key are not valid PEM, or do not belong together."
CA = "The trusted certificates could not be read."


def here(host: str) -> tuple[str, ...]:
    return ("127.0.0.1",)


@pytest.fixture
def ca_file(tmp_path: Path) -> str:
    """Here the servers' certificates are public ones."""
    trusted = tmp_path / "public.pem"
    trusted.write_bytes(SERVERS.pem)
    return str(trusted)


@pytest.fixture
def transport(ca_file: str) -> Iterator[RequestsTransport]:
    transport = RequestsTransport(LOOPBACK, ca_file=ca_file, look_up=here)
    yield transport
    transport.close()


def one(transport: RequestsTransport, url: str, tls: Tls) -> Outcome:
    transport.submit(request(1, url)._replace(tls=tls))
    (outcome,) = collect(transport, 1)
    return outcome


@pytest.mark.parametrize("newest", [True, False], ids=["TLS 1.3", "TLS 1.2"])
def test_every_request_shows_its_own_certificate_on_a_connection_of_its_own(
    transport: RequestsTransport, *, newest: bool
) -> None:
    shown = (ANNA, BERT, PUBLIC, ANNA, Tls(SERVERS.pem), BERT)
    with Doorman(SERVERS.server(asks=CLIENTS, newest=newest)) as doorman:
        said = [dict(one(transport, doorman.url, tls).headers) for tls in shown]
    assert [each["X-Client"] for each in said] == ["anna", "bert", "nobody", "anna", "nobody", "bert"]
    assert len({each["X-Connection"] for each in said}) == len(shown)
    assert {each["X-Resumed"] for each in said} == {"False"}


def test_a_receiver_that_requires_a_certificate_answers_only_who_shows_one(transport: RequestsTransport) -> None:
    with Doorman(SERVERS.server(asks=CLIENTS, required=True)) as doorman:
        stranger = Tls(SERVERS.pem, *OTHERS.issue("anna"))
        for tls in (PUBLIC, Tls(SERVERS.pem), stranger):
            assert one(transport, doorman.url, tls).verdict != ANSWERED
        assert one(transport, doorman.url, ANNA).verdict == ANSWERED
        assert doorman.seen == ["anna"]


def test_a_private_authority_is_trusted_instead_of_the_public_ones(transport: RequestsTransport) -> None:
    with Doorman(SERVERS.server()) as of_public, Doorman(OTHERS.server()) as of_private:
        assert one(transport, of_public.url, PUBLIC).verdict == ANSWERED
        assert one(transport, of_private.url, Tls(OTHERS.pem)).verdict == ANSWERED
        for url, tls in ((of_public.url, Tls(OTHERS.pem)), (of_private.url, PUBLIC), (of_private.url, ANNA)):
            outcome = one(transport, url, tls)
            assert outcome.verdict == NOT_SENT
            assert outcome.error.startswith("The receiver's certificate was not accepted:")


def test_a_single_request_does_the_same(ca_file: str) -> None:
    with Doorman(SERVERS.server(asks=CLIENTS)) as doorman:
        for tls, name in ((ANNA, "anna"), (PUBLIC, "nobody")):
            fetched = fetch(
                "GET", doorman.url, (), timeout_ms=5000, policy=LOOPBACK, tls=tls, ca_file=ca_file, look_up=here
            )
            assert (fetched.verdict, dict(fetched.headers)["X-Client"]) == (ANSWERED, name)
        wrong = fetch("GET", doorman.url, (), timeout_ms=5000, policy=LOOPBACK, tls=Tls(b"?"), look_up=here)
        assert (wrong.verdict, wrong.error) == (NOT_SENT, CA)


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (Tls(client_certificate=ANNA.client_certificate), "A client certificate and its key must be given together."),
        (Tls(client_key=ANNA.client_key), "A client certificate and its key must be given together."),
        (Tls(b"", ANNA.client_certificate, BERT.client_key), PAIR),
        (Tls(b"", ANNA.client_certificate, GARBAGE), PAIR),
        (Tls(b"", b"no PEM", ANNA.client_key), PAIR),
        (Tls(b"", ANNA.client_key, ANNA.client_certificate), PAIR),
        (Tls(b"no PEM"), CA),
        (Tls(b"\xff\xfe"), CA),
        (Tls(ANNA.client_key), CA),
        (
            Tls(b"", ANNA.client_certificate, key_pem(ec.generate_private_key(ec.SECP256R1()), b"passphrase")),
            "The client key is protected by a passphrase; it must be given without one.",
        ),
    ],
)
def test_what_cannot_be_used_is_not_sent_and_the_sentence_says_why_and_shows_no_key(
    transport: RequestsTransport, tls: Tls, why: str
) -> None:
    with Doorman(SERVERS.server(asks=CLIENTS)) as doorman:
        outcome = one(transport, doorman.url, tls)
        assert doorman.seen == []
    assert (outcome.verdict, outcome.error, outcome.evidence.sends) == (NOT_SENT, why, 0)


def test_a_protected_key_is_not_asked_for_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that has one, and where the word that gives it away is not found."""
    monkeypatch.setattr(tls_context, "check_tls", lambda tls: None)
    key = ec.generate_private_key(ec.SECP256R1())
    child, terminal = pty.fork()
    if child == 0:
        try:
            context_for("", Tls(SERVERS.pem, ANNA.client_certificate, key_pem(key, b"passphrase")), TlsSocket)
        except Refused as refused:
            os._exit(0 if str(refused) == PAIR else 1)
        finally:
            os._exit(2)
    process = psutil.Process(child)
    try:
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 10, "its end")
    finally:
        process.kill()
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


def test_no_key_is_left_on_a_disk_or_in_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca_file: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
    before = set(Path("/proc/self/fd").iterdir())
    made = context_for(ca_file, ANNA, TlsSocket)
    assert context_for(ca_file, Tls(*(bytes(bytearray(part)) for part in ANNA)), TlsSocket) is made
    assert context_for(ca_file, BERT, TlsSocket) is not made
    assert set(Path("/proc/self/fd").iterdir()) == before
    secret = ANNA.client_key.splitlines()[1].decode()
    assert secret not in repr(tls_context._kept)
    assert secret not in repr(request(1, "https://a/")._replace(tls=ANNA))


def test_as_many_contexts_are_kept_as_are_used(ca_file: str) -> None:
    first = context_for(ca_file, PUBLIC, TlsSocket)
    for number in range(tls_context.KEPT + 3):
        context_for(ca_file, Tls(SERVERS.pem + b"\n" * number), TlsSocket)
        assert context_for(ca_file, PUBLIC, TlsSocket) is first  # in use all the time
    assert len(tls_context._kept) == tls_context.KEPT


def test_an_early_answer_is_heard_over_tls_though_session_tickets_came_before_it(tmp_path: Path) -> None:
    """Two tickets lie unread in the socket while the body is written: they are no answer."""
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver(tls=context, before_body=lambda _: Answer(413, delay=0.3), receive_buffer=65536) as receiver:
        transport = RequestsTransport(LOOPBACK, ca_file=trusted, look_up=here)
        transport.submit(request(1, f"https://hooks.customer.com:{receiver.port}/", BIG * 4))
        (outcome,) = collect(transport, 1)
        transport.close()
    assert (outcome.verdict, outcome.http_status) == (NOT_SENT, 413)
    assert outcome.error == "The receiver answered 413 before the request was complete."
    assert outcome.evidence.elapsed_ms < 4000


def test_a_receiver_that_reads_late_gets_all_of_it_though_session_tickets_came_meanwhile(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    reads_on = threading.Event()

    def pause(_: Received) -> None:
        assert reads_on.wait(20)

    with Receiver(tls=context, before_body=pause, receive_buffer=65536) as receiver:
        transport = RequestsTransport(LOOPBACK, ca_file=trusted, look_up=here)
        transport.submit(request(1, f"https://hooks.customer.com:{receiver.port}/", BIG * 2))
        wait_until(lambda: transport.poll(0.01) or (transport._flights and blocked(transport)), 5, "no more is taken")
        reads_on.set()
        (outcome,) = collect(transport, 1)
        transport.close()
        assert [len(received.body) for received in receiver.requests] == [len(BIG) * 2]
    assert outcome.verdict == ANSWERED


def blocked(transport: RequestsTransport) -> bool:
    """Whether the receiver's end and ours are full."""
    trace = transport._flights[1].trace
    before = trace.written
    time.sleep(0.1)
    return 0 < before == trace.written


def test_what_lies_in_the_socket_at_a_stop_is_still_read_through_tls(ca_file: str) -> None:
    with Doorman(SERVERS.server()) as doorman:
        now = time.monotonic()
        trace = Trace(
            target_of(doorman.url), ("127.0.0.1",), policy=LOOPBACK, started=now, deadline=now + 10, connect_s=5,
            body_bytes=0, ca_file=ca_file,
        )  # fmt: skip
        made = connected(trace)
        assert isinstance(made, TlsSocket)
        with made:
            made.write_some(memoryview(b"POST / HTTP/1.1\r\n\r\n"))
            buffer = bytearray(12)
            assert made.recv_into(buffer) == 12  # the answer is one record: the rest of it has come too
            trace.stop()
            assert made.recv_into(buffer) == 12
            assert bytes(buffer) == b" OK\r\nX-Clien"


def test_a_body_whose_end_tls_does_not_vouch_for_is_not_called_whole(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        receiver.answers.append(Answer(raw=b"HTTP/1.1 200 OK\r\n\r\nbody", close=True))
        fetched = fetch(
            "GET", f"https://hooks.customer.com:{receiver.port}/", (), timeout_ms=5000, policy=LOOPBACK,
            ca_file=trusted, look_up=here,
        )  # fmt: skip
    assert (fetched.verdict, fetched.status, fetched.body, fetched.body_complete) == (ANSWERED, 200, b"body", False)
    assert fetched.error == "The response body was cut short."


def test_a_request_that_hangs_over_tls_is_stopped_at_once(transport: RequestsTransport) -> None:
    with Receiver(lambda _: Answer(hang=True), tls=SERVERS.server()) as receiver:
        transport.submit(request(1, f"https://hooks.customer.com:{receiver.port}/", timeout_ms=60_000))
        while not receiver.requests:  # its name is looked up first
            assert transport.poll(0.01) == []
        (outcome,) = transport.abort([1])
    assert (outcome.verdict, outcome.error) == ("unknown", "Stopped by us while in flight.")
    assert outcome.evidence.elapsed_ms < 5000


def test_a_connection_that_was_reset_before_its_handshake_leaves_no_socket_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plain = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
    poll = select.poll()
    poll.register(plain, select.POLLIN)
    assert poll.poll(5_000)
    number = plain.fileno()
    context = context_for(certifi.where(), PUBLIC, TlsSocket)
    with pytest.raises(OSError, match="reset") as refused:
        context.wrap_socket(plain, server_hostname="example.com", do_handshake_on_connect=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    assert refused.value.__traceback__ is not None, "and nothing of it was collected meanwhile"
