"""PEM: the certificate and key that we show to a receiver, and the authorities that its own must come from.

What is stored is written anew from what was parsed: text around a certificate, perhaps a key, is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from deliveries.rules.broken import RuleBroken

CHAIN, AUTHORITIES = 5, 10
CERTIFICATES_LENGTH, KEY_LENGTH = 64 * 1024, 16 * 1024
SHORTEST_RSA = 2048

_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)


def client_certificate(text: str) -> str:
    """The certificate, its own first and then those up to its authority, as it is stored; `RuleBroken` otherwise."""
    chain = parsed(text, CHAIN)
    if chain[0].not_valid_after_utc <= datetime.now(UTC):
        raise RuleBroken(f"the certificate ran out at {chain[0].not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    return _pem(chain)


def ca_certificates(text: str) -> str:
    """Authorities, as they are stored; `RuleBroken` when one is none, or all of them have run out."""
    authorities = parsed(text, AUTHORITIES)
    for number, one in enumerate(authorities, start=1):
        if not _is_authority(one):
            raise RuleBroken(f"certificate {number} is not that of an authority (basic constraints: CA)")
    if all(one.not_valid_after_utc <= datetime.now(UTC) for one in authorities):
        raise RuleBroken("every certificate has run out")
    return _pem(authorities)


def client_key(text: str) -> str:
    """The private key, as it is sealed; `RuleBroken` otherwise, whose message holds nothing of it."""
    if len(text) > KEY_LENGTH:
        raise RuleBroken(f"is longer than {KEY_LENGTH} characters")
    if _ENCRYPTED.search(text):
        raise RuleBroken("is encrypted; give the key without a passphrase: it is kept encrypted here")
    if not _PRIVATE.search(text):
        raise RuleBroken("is not a private key in PEM (-----BEGIN PRIVATE KEY-----)")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except Exception:  # noqa: BLE001 - of many kinds, and each may quote what it could not read
        raise RuleBroken("cannot be read as a private key") from None
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size < SHORTEST_RSA:
            raise RuleBroken(f"is an RSA key of less than {SHORTEST_RSA} bits")
    elif not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise RuleBroken("must be an RSA, elliptic curve or Ed25519 key")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def belong_together(certificate: str, key: str) -> bool:
    """Whether the key is that of the first certificate. Both are as they are stored."""
    public = x509.load_pem_x509_certificates(certificate.encode())[0].public_key()
    private = load_pem_private_key(key.encode(), password=None)
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return public.public_bytes(*form) == private.public_key().public_bytes(*form)


def parsed(text: str, most: int) -> Sequence[x509.Certificate]:
    """1 to `most` certificates."""
    if len(text) > CERTIFICATES_LENGTH:
        raise RuleBroken(f"is longer than {CERTIFICATES_LENGTH} characters")
    if _PRIVATE.search(text):
        raise RuleBroken("holds a private key, which belongs in client_key")
    if _CERTIFICATE not in text:
        raise RuleBroken(f"is not a certificate in PEM ({_CERTIFICATE})")
    try:
        found = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise RuleBroken("cannot be read as certificates in PEM") from None
    if len(found) != text.count(_CERTIFICATE):
        raise RuleBroken("cannot be read as certificates in PEM")
    if len(found) > most:
        raise RuleBroken(f"has more than {most} certificates")
    return found


def told(text: str) -> list[str]:
    """A stored certificate or bundle in words, one line each: whose, and until when."""
    try:
        found = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        return ["Not a certificate that can be read"]
    return [
        f"{one.subject.rfc4514_string() or 'No name'}, until {one.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        for one in found
    ]


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in certificates)
