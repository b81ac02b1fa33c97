"""Handshakes that fail, certificates of every kind, and connections that end badly beneath TLS."""

from __future__ import annotations

from deliveries.outcomes import NOT_SENT, UNKNOWN
from tests.conformance.cases import Case, Expect, answered, not_sent, unknown
from tests.conformance.script import (
    OK,
    Alert,
    Beneath,
    Fin,
    Hang,
    Notify,
    Ragged,
    Read,
    ReadBytes,
    Rst,
    Send,
    Step,
    Unread,
)

_HANDSHAKE = "TLS handshake"
_CERTIFICATE = "TLS certificates"
_ENDING = "TLS endings"

_ANSWER = (Read(), Send(OK))
# The handshake of TLS 1.3 is over for the client before the server has judged its certificate.
_LATE_REFUSAL = (Expect(NOT_SENT, None, 0), Expect(UNKNOWN, None, 0))
_NONSENSE = b"\x16\x03\x03\xff\xff" + b"x" * 99
_OTHERS = "shows a certificate of another issuer"
_GARBAGE = Beneath(b"\x17\x03\x03\x00\x20" + b"x" * 32)


def _handshake(name: str, *script: Step, by_deadline: bool = False) -> Case:
    return Case(
        name, _HANDSHAKE, not_sent(), script, over=("tls",), on=("fresh",), server=None, by_deadline=by_deadline,
    )  # fmt: skip


def _certificate(name: str, server: str) -> Case:
    return Case(name, _CERTIFICATE, not_sent(), _ANSWER, over=("tls",), on=("fresh",), server=server)


def _client(name: str, version: str, client: str, expect: tuple[Expect, ...]) -> Case:
    server = f"TLS {version}, wants a client certificate"
    return Case(name, _CERTIFICATE, expect, _ANSWER, over=("tls",), on=("fresh",), server=server, client=client)


def _ending(name: str, *script: Step) -> Case:
    return Case(name, _ENDING, unknown(), (Read(), *script), over=("tls",), sizes=("7 B", "1 MB"))


CASES: tuple[Case, ...] = (
    _handshake("the peer answers the handshake in plain HTTP", Unread(), Send(b"HTTP/1.1 400 No\r\n\r\n"), Fin()),
    _handshake("the handshake stalls", Unread(), Hang(), by_deadline=True),
    _handshake("the peer closes in the handshake", ReadBytes(50), Fin()),
    _handshake("the peer closes before the handshake", Fin()),
    _handshake("the peer resets in the handshake", ReadBytes(50), Rst()),
    _handshake("the peer resets before the handshake", Rst()),
    _handshake("the peer refuses with an alert", ReadBytes(50), Send(b"\x15\x03\x03\x00\x02\x02\x28"), Fin()),
    _handshake("the peer speaks older versions only", ReadBytes(50), Send(b"\x15\x03\x01\x00\x02\x02\x46"), Fin()),
    _handshake("the peer answers the handshake with garbage", ReadBytes(50), Send(_NONSENSE), Fin()),
    _certificate("a self-signed certificate", "self-signed"),
    _certificate("a certificate for another name", "for another name"),
    _certificate("an expired certificate", "expired"),
    _certificate("a certificate that is not yet valid", "not yet valid"),
    _certificate("a certificate of an unknown issuer", "of an unknown issuer"),
    Case(
        "the trusted certificates cannot be read", _CERTIFICATE, not_sent(), _ANSWER, over=("tls",), on=("fresh",),
        ca_file="missing",
    ),
    _client("a client certificate is wanted, TLS 1.2", "1.2", "", not_sent()),
    _client("a client certificate is wanted, TLS 1.3", "1.3", "", _LATE_REFUSAL),
    _client("another client certificate is wanted, TLS 1.2", "1.2", _OTHERS, not_sent()),
    _client("another client certificate is wanted, TLS 1.3", "1.3", _OTHERS, _LATE_REFUSAL),
    _client("the client certificate is the one wanted, TLS 1.2", "1.2", "shows a certificate", answered()),
    _client("the client certificate is the one wanted, TLS 1.3", "1.3", "shows a certificate", answered()),
    Case(
        "the endpoint's own issuer is trusted", _CERTIFICATE, answered(), _ANSWER, over=("tls",),
        server="of a private issuer", client="trusts the private issuer",
    ),
    Case(
        "the endpoint's own issuer is trusted instead of the public ones", _CERTIFICATE, not_sent(), _ANSWER,
        over=("tls",), on=("fresh",), client="trusts the private issuer",
    ),
    Case(
        "plain HTTP to a TLS port", _HANDSHAKE, unknown(arrives=0), over=("http",), on=("fresh",),
        over_plain_server="good",
    ),
    Case("an answer over TLS 1.2", _CERTIFICATE, answered(), _ANSWER, over=("tls",), server="TLS 1.2", body=b"ok"),
    Case(
        "the receiver would rather speak HTTP/2", _CERTIFICATE, answered(), _ANSWER, over=("tls",),
        server="good, offers HTTP/2", body=b"ok",
    ),
    _ending("a bad record after the request", _GARBAGE, Ragged()),
    _ending("the connection beneath TLS is closed after the request", Ragged()),
    _ending("close_notify after the request", Fin()),
    _ending("a fatal alert after the request", Alert(), Ragged()),
    _ending("a fatal alert in the clear after the request", Beneath(b"\x15\x03\x03\x00\x02\x02\x50"), Ragged()),
    _ending("half a record after the request", Beneath(b"\x17\x03\x03\x01\x00" + b"x" * 16), Ragged()),
    Case(
        "close_notify and no more between two requests", _ENDING, answered(), (Notify(), Hang()), over=("tls",),
        on=("reused",), body=b"ok",
    ),
    Case(
        "a fatal alert in the clear between two requests", _ENDING, answered(),
        (Beneath(b"\x15\x03\x03\x00\x02\x02\x50"), Hang()), over=("tls",), on=("reused",), body=b"ok",
    ),
    Case(
        "a fatal alert in the head", _ENDING, unknown(),
        (Read(), Send(b"HTTP/1.1 200 OK\r\nX: y\r\n"), Alert(), Ragged()), over=("tls",),
    ),
    Case(
        "the connection beneath TLS is closed in the body", _ENDING, answered(error=True),
        (Read(), Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Ragged()), over=("tls",), body=b"half",
    ),
    Case(
        "the connection beneath TLS ends a body without a length", _ENDING, answered(error=True),
        (Read(), Send(b"HTTP/1.1 200 OK\r\n\r\nwhole"), Ragged()), over=("tls",), body=b"whole",
    ),
)  # fmt: skip
