"""TLS of an endpoint's own: client certificates and private authorities, and that none is ever used for another."""

from __future__ import annotations

import os
import pty
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport import curl, curl_tls
from deliveries.transport.base import PUBLIC, Outcome, Tls
from deliveries.transport.curl import CurlTransport
from tests.doorman import Authority, Doorman, key_pem
from tests.receiver import Receiver
from tests.support.waiting import wait_until
from tests.transports import LOOPBACK, certificate, collect, request, send

SERVERS = Authority("Servers of a customer")
OTHERS = Authority("Another authority of the same name")
CLIENTS = Authority("Clients of a customer")


def client(name: str) -> Tls:
    certificate, key = CLIENTS.issue(name)
    return Tls(SERVERS.pem, certificate, key)


ANNA, BERT = client("anna"), client("bert")
NAMES = {ANNA: "anna", BERT: "bert", Tls(SERVERS.pem): "nobody", PUBLIC: "nobody"}


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[CurlTransport]:
    """For which the servers' certificates are public ones."""
    trusted = tmp_path / "public.pem"
    trusted.write_bytes(SERVERS.pem)
    transport = CurlTransport(LOOPBACK, ca_file=str(trusted), look_up=lambda host: ("127.0.0.1",))
    yield transport
    transport.close()


@pytest.fixture(params=[True, False], ids=["TLS 1.3", "TLS 1.2"])
def doorman(request: pytest.FixtureRequest) -> Iterator[Doorman]:
    with Doorman(SERVERS.server(asks=CLIENTS, newest=request.param)) as doorman:
        yield doorman


def say(outcome: Outcome, name: str) -> str:
    assert outcome.verdict == ANSWERED, outcome
    return dict(outcome.headers)[name]


def one(transport: CurlTransport, url: str, tls: Tls) -> Outcome:
    transport.submit(request(1, url)._replace(tls=tls))
    (outcome,) = collect(transport, 1)
    return outcome


# What is shown and what is trusted


def test_the_receiver_sees_the_client_certificate_and_the_connection_is_reused(
    transport: CurlTransport, doorman: Doorman
) -> None:
    outcomes = [one(transport, doorman.url, ANNA) for _ in range(3)]
    assert [say(outcome, "X-Client") for outcome in outcomes] == ["anna"] * 3
    assert [outcome.evidence.reused for outcome in outcomes] == [False, True, True]
    same = Tls(*(bytes(bytearray(part)) for part in ANNA))  # equal, and read from the database once more
    assert one(transport, doorman.url, same).evidence.reused


def test_a_receiver_that_requires_a_certificate_answers_only_who_shows_one(transport: CurlTransport) -> None:
    with Doorman(SERVERS.server(asks=CLIENTS, required=True)) as doorman:
        stranger = Tls(SERVERS.pem, *OTHERS.issue("anna"))
        for tls in (PUBLIC, Tls(SERVERS.pem), stranger):
            assert one(transport, doorman.url, tls).verdict != ANSWERED
        assert say(one(transport, doorman.url, ANNA), "X-Client") == "anna"
        for tls in (PUBLIC, Tls(SERVERS.pem), stranger):
            assert one(transport, doorman.url, tls).verdict != ANSWERED
        assert doorman.seen == ["anna"]


def test_a_private_authority_is_trusted_instead_of_the_public_ones(transport: CurlTransport) -> None:
    """Whichever of them opened a connection first: nobody rides on it who does not trust the server."""
    with Doorman(SERVERS.server()) as of_public, Doorman(OTHERS.server()) as of_private:
        for _ in range(3):
            assert one(transport, of_public.url, PUBLIC).verdict == ANSWERED
            assert one(transport, of_private.url, Tls(OTHERS.pem)).verdict == ANSWERED
            for url, tls in ((of_public.url, Tls(OTHERS.pem)), (of_private.url, PUBLIC), (of_private.url, ANNA)):
                outcome = one(transport, url, tls)
                assert outcome.verdict == NOT_SENT
                assert outcome.error.startswith("The receiver's certificate was not accepted:")
        assert (len(of_public.seen), len(of_private.seen)) == (3, 3)


# Never one for another


@pytest.mark.parametrize(
    ("first", "second"),
    [(ANNA, BERT), (BERT, ANNA), (ANNA, PUBLIC), (PUBLIC, ANNA), (ANNA, Tls(SERVERS.pem)), (Tls(SERVERS.pem), ANNA),
     (PUBLIC, Tls(SERVERS.pem)), (Tls(SERVERS.pem), PUBLIC)],
)  # fmt: skip
def test_a_connection_is_never_used_with_another_tls_than_it_was_made_with(
    transport: CurlTransport, doorman: Doorman, first: Tls, second: Tls
) -> None:
    before = one(transport, doorman.url, first)
    other = one(transport, doorman.url, second)
    after = one(transport, doorman.url, first)
    assert [say(outcome, "X-Client") for outcome in (before, other, after)] == [
        NAMES[t] for t in (first, second, first)
    ]
    assert say(before, "X-Connection") == say(after, "X-Connection") != say(other, "X-Connection")
    assert say(other, "X-Resumed") == "False"
    assert not other.evidence.resubmitted  # the cache of libcurl knew the difference by itself


@pytest.mark.parametrize(("first", "second"), [(ANNA, PUBLIC), (PUBLIC, ANNA), (ANNA, BERT)])
def test_it_is_not_used_either_when_libcurl_does_not_know_the_difference(
    transport: CurlTransport, doorman: Doorman, monkeypatch: pytest.MonkeyPatch, first: Tls, second: Tls
) -> None:
    monkeypatch.setattr(curl_tls, "apply", lambda tls, curl: None)
    before, other = one(transport, doorman.url, first), one(transport, doorman.url, second)
    assert say(before, "X-Connection") != say(other, "X-Connection")
    assert (other.evidence.resubmitted, other.evidence.reused) == (True, False)


def test_a_session_is_never_resumed_with_another_certificate_or_trust(
    transport: CurlTransport, doorman: Doorman
) -> None:
    """Every request on a connection of its own, as an empty body has."""
    for tls in random.Random(1).choices(list(NAMES), k=24):
        transport.submit(request(1, doorman.url, b"")._replace(tls=tls))
        (outcome,) = collect(transport, 1)
        assert say(outcome, "X-Client") == NAMES[tls]
        if tls != PUBLIC:
            assert say(outcome, "X-Resumed") == "False"


def test_many_at_once_are_each_taken_for_whom_they_are(transport: CurlTransport, doorman: Doorman) -> None:
    clients = {client(f"client {number}"): f"client {number}" for number in range(5)} | NAMES
    chosen = random.Random(2).choices(list(clients), k=400)
    outcomes: list[Outcome] = []
    waiting = dict(enumerate(chosen))
    while len(outcomes) < len(chosen):
        while waiting and transport.in_flight < 12:
            key, tls = waiting.popitem()
            transport.submit(request(key, doorman.url)._replace(tls=tls))
        outcomes += collect(transport, 1)
    assert {outcome.verdict for outcome in outcomes} == {ANSWERED}
    assert all(say(outcome, "X-Client") == clients[chosen[outcome.key]] for outcome in outcomes)
    assert any(outcome.evidence.reused for outcome in outcomes)


def test_a_certificate_does_not_stay_on_a_handle_for_another_receiver(transport: CurlTransport) -> None:
    context = SERVERS.server(asks=CLIENTS)
    with Doorman(context) as first, Doorman(context) as second:
        for tls in (ANNA, BERT):
            assert say(one(transport, first.url, tls), "X-Client") == NAMES[tls]
            transport.submit(request(2, first.url)._replace(tls=tls))
            transport.abort([2])
            assert (
                one(transport, first.url, Tls(OTHERS.pem, tls.client_certificate, tls.client_key)).verdict == NOT_SENT
            )
            for _ in range(3):
                assert say(one(transport, second.url, PUBLIC), "X-Client") == "nobody"
        assert "nobody" not in first.seen


def test_over_plain_http_a_tls_changes_nothing(transport: CurlTransport) -> None:
    with Receiver() as receiver:
        assert one(transport, receiver.url, PUBLIC).verdict == ANSWERED
        assert one(transport, receiver.url, ANNA).evidence.reused
        assert receiver.connections == 1


# What cannot be used

KEY = ec.generate_private_key(ec.SECP256R1())
CERTIFICATE, ITS_KEY = ANNA.client_certificate, ANNA.client_key
NOT_VALID = "The client certificate and its key are not valid PEM, or do not belong together."


@pytest.mark.parametrize(
    ("tls", "error"),
    [
        (Tls(SERVERS.pem, b"no certificate", ITS_KEY), NOT_VALID),
        (Tls(SERVERS.pem, CERTIFICATE[:200], ITS_KEY), NOT_VALID),
        (Tls(SERVERS.pem, CERTIFICATE, b"no key"), NOT_VALID),
        (Tls(SERVERS.pem, CERTIFICATE, ITS_KEY[:-60]), NOT_VALID),
        (Tls(SERVERS.pem, CERTIFICATE, key_pem(KEY)), NOT_VALID),
        (Tls(SERVERS.pem, ITS_KEY, CERTIFICATE), NOT_VALID),
        (Tls(SERVERS.pem, CERTIFICATE), "A client certificate and its key must be given together."),
        (Tls(SERVERS.pem, b"", ITS_KEY), "A client certificate and its key must be given together."),
        (Tls(SERVERS.pem, CERTIFICATE, key_pem(KEY, b"passphrase")), "The client key is protected by a passphrase"),
        (Tls(b"no certificate"), "The trusted certificates could not be read."),
        (Tls(SERVERS.pem[:100]), "The trusted certificates could not be read."),
        (Tls(SERVERS.pem * 20_000), "The endpoint's certificates cannot be used."),
    ],
)
def test_what_is_not_valid_is_not_sent_and_named_without_what_it_holds(
    transport: CurlTransport, tls: Tls, error: str
) -> None:
    with Doorman(SERVERS.server(asks=CLIENTS)) as doorman:
        outcome = one(transport, doorman.url, tls)
        assert (outcome.verdict, doorman.seen) == (NOT_SENT, [])
        assert outcome.error.startswith(error)
        assert outcome.evidence.elapsed_ms < 4000  # nobody is asked for a passphrase
        for line in (*tls.client_key.splitlines()[1:-1], *tls.client_certificate.splitlines()[1:-1]):
            assert line.decode() not in repr((outcome, tls))
        assert transport.in_flight == 0
        assert say(one(transport, doorman.url, PUBLIC), "X-Client") == "nobody"


def test_a_protected_key_is_not_asked_for_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that has one, and where the word that gives it away is not found."""
    monkeypatch.setattr(curl, "check_tls", lambda tls: None)
    with Doorman(SERVERS.server(asks=CLIENTS)) as doorman:
        child, terminal = pty.fork()
        if child == 0:
            try:
                transport = CurlTransport(LOOPBACK, look_up=lambda host: ("127.0.0.1",))
                outcome = one(transport, doorman.url, Tls(SERVERS.pem, CERTIFICATE, key_pem(KEY, b"passphrase")))
                os._exit(0 if (outcome.verdict, outcome.error) == (NOT_SENT, NOT_VALID) else 1)
            finally:
                os._exit(2)
        process = psutil.Process(child)
        try:
            wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 10, "the request's end")
        finally:
            process.kill()
            _, status = os.waitpid(child, 0)
            os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 0


def test_the_secrets_of_connections_are_not_logged_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        transport = CurlTransport(LOOPBACK, ca_file=trusted, look_up=lambda host: ("127.0.0.1",))
        url = f"https://hooks.customer.com:{receiver.port}/"
        assert send(transport, url).verdict == ANSWERED
        assert one(transport, url, Tls(Path(trusted).read_bytes())).verdict == ANSWERED
        transport.close()
    assert not log.exists()
