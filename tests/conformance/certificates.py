"""The certificates of the scripted receiver: one good, and each way to be wrong."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from deliveries.transport.base import PUBLIC, Tls

HOST = "receiver.example.com"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identities:
    """Contexts of servers by what is right or wrong with them, what clients show, and what they must trust (PEM)."""

    trusted: bytes
    servers: dict[str, ssl.SSLContext]
    clients: dict[str, Tls]


@lru_cache(maxsize=1)
def identities() -> Identities:
    """Made once per process."""
    authority, stranger, private = _Authority("trusted"), _Authority("stranger"), _Authority("private")
    alone = _Authority(HOST, name=HOST)
    good = authority.sign("*.example.com")
    servers = {
        "good": _server(*good),
        "self-signed": _server(alone.pem, _pem(alone.key)),
        "for another name": _server(*authority.sign("other.example.com")),
        "expired": _server(*authority.sign(HOST, since=-3 * _DAY, until=-_DAY)),
        "not yet valid": _server(*authority.sign(HOST, since=_DAY, until=3 * _DAY)),
        "of an unknown issuer": _server(*stranger.sign(HOST)),
        "of a private issuer": _server(*private.sign(HOST)),
        "TLS 1.2": _server(*good, version=ssl.TLSVersion.TLSv1_2),
        "TLS 1.2, wants a client certificate": _server(*good, version=ssl.TLSVersion.TLSv1_2, wants=private.pem),
        "TLS 1.3, wants a client certificate": _server(*good, version=ssl.TLSVersion.TLSv1_3, wants=private.pem),
    }
    servers["good, offers HTTP/2"] = _server(*good)
    servers["good, offers HTTP/2"].set_alpn_protocols(["h2", "http/1.1"])
    clients = {
        "": PUBLIC,
        "trusts the private issuer": Tls(ca_certificates=private.pem),
        "shows a certificate": Tls(b"", *private.sign("client")),
        "shows a certificate of another issuer": Tls(b"", *stranger.sign("client")),
    }
    return Identities(authority.pem, servers, clients)


class _Authority:
    def __init__(self, title: str, *, name: str = "") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        builder = _builder(self.subject, self.subject, self.key, -_DAY, _DAY, ca=True)
        if name:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self.pem = builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def sign(self, name: str, *, since: timedelta = -_DAY, until: timedelta = _DAY) -> tuple[bytes, bytes]:
        """(certificate, key) for `name` and 127.0.0.1, valid between two times from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName(name), x509.IPAddress(IPv4Address("127.0.0.1"))]
        builder = _builder(subject, self.subject, key, since, until, ca=False)
        signed = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return signed.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM), _pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    since: timedelta,
    until: timedelta,
    *,
    ca: bool,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _server(
    certificate: bytes, key: bytes, *, version: ssl.TLSVersion | None = None, wants: bytes = b""
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as chain:  # the library reads certificates from files only
        Path(chain.name).write_bytes(certificate + key)
        context.load_cert_chain(chain.name)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if wants:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=wants.decode())
    return context
