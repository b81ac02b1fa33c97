"""Certificates that tests make for themselves: an authority, and what it signs for servers and clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; its own is `pem`."""

    def __init__(self, name: str = "Relay tests", *, until: timedelta = HOUR, ca: bool = True) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = _builder(self._name, self._name, self._key, until, ca=ca).sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, name: str, *, until: timedelta = HOUR) -> Pair:
        """A certificate for a client of this name, or for a server on 127.0.0.1 and localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
        signed = (
            _builder(_name(name), self._name, key, until, ca=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Pair(signed.public_bytes(Encoding.PEM).decode(), pem_of(key))

    def server(self, folder: Path, *, demands: Authority | None = None) -> ssl.SSLContext:
        """The context of a server whose certificate this authority signed, which `demands` one of that authority."""
        pair = self.sign("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain = folder / "server.pem"
        chain.write_text(pair.certificate + pair.key)
        context.load_cert_chain(chain)
        if demands is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=demands.pem)
        return context


def pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: timedelta, *, ca: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 48 * HOUR)
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
