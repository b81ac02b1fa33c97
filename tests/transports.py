"""What the tests of transports share: requests, their outcomes, certificates."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deliveries.egress import EgressPolicy
from deliveries.transport.base import Outcome, Request, Transport
from tests.receiver import Receiver

LOOPBACK = EgressPolicy(allow=[ipaddress.ip_network("127.0.0.0/8")])
HEADERS = (("Content-Type", "application/json"), ("webhook-id", "evt_1"), ("webhook-signature", "v1,AAAA"))
BODY = b'{"a":1}'
BIG = b"x" * 5_000_000


def request(
    key: int,
    url: str,
    body: bytes = BODY,
    *,
    headers: tuple[tuple[str, str], ...] = HEADERS,
    timeout_ms: int = 5000,
    connect_timeout_ms: int = 5000,
) -> Request:
    return Request(key, url, headers, body, timeout_ms, connect_timeout_ms)


def collect(transport: Transport, count: int, timeout: float = 20.0) -> list[Outcome]:
    """Poll until `count` outcomes came."""
    until = time.monotonic() + timeout
    outcomes: list[Outcome] = []
    while len(outcomes) < count:
        assert time.monotonic() < until, f"{len(outcomes)} of {count} outcomes after {timeout} s"
        outcomes += transport.poll(0.2)
    return outcomes


def send(
    transport: Transport,
    url: str,
    body: bytes = BODY,
    *,
    headers: tuple[tuple[str, str], ...] = HEADERS,
    timeout_ms: int = 5000,
    connect_timeout_ms: int = 5000,
) -> Outcome:
    """Submit one request and wait for its outcome."""
    transport.submit(
        request(1, url, body, headers=headers, timeout_ms=timeout_ms, connect_timeout_ms=connect_timeout_ms)
    )
    (outcome,) = collect(transport, 1)
    assert outcome.key == 1
    assert transport.in_flight == 0
    return outcome


def closed_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_closed(receiver: Receiver) -> None:
    """Wait until the receiver has closed every connection."""
    until = time.monotonic() + 5
    while receiver._open:
        assert time.monotonic() < until, "a connection stayed open"
        time.sleep(0.001)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    """A server's TLS context for `name`, and the path of the one certificate that a client must trust for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Relay tests")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = folder / f"{name}.crt", folder / f"{name}.key"
    trusted.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    return context, str(trusted)
