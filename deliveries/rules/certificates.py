"""PEM: the certificate and key that we show to a receiver, and the authorities that its own must come from.

What is stored is written anew from what was parsed: text around a certificate, perhaps a key, is not kept.

What others made may be anything, and `cryptography` has exceptions for it that have no class in common (of an unknown
algorithm, curve or version, of an extension that is there twice), some only when that part is looked at. So each look
is taken here, whatever it raises is a broken rule, and nothing of what it says, which may quote the bytes, is repeated.
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
    try:
        chain[0].public_key()
    except Exception:  # noqa: BLE001 - see above
        raise RuleBroken("the certificate's key cannot be read: its algorithm or curve is not known here") from None
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
    """Whether the key is that of the first certificate, as far as both can be read. Both are as they are stored."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        public = x509.load_pem_x509_certificates(certificate.encode())[0].public_key()
        private = load_pem_private_key(key.encode(), password=None)
        return public.public_bytes(*form) == private.public_key().public_bytes(*form)
    except Exception:  # noqa: BLE001 - see above
        return False


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
        for one in found:
            _told(one)  # what is stored must be fit to be shown
    except Exception:  # noqa: BLE001 - see above
        raise RuleBroken("cannot be read as certificates in PEM") from None
    if len(found) != text.count(_CERTIFICATE):
        raise RuleBroken("cannot be read as certificates in PEM")
    if len(found) > most:
        raise RuleBroken(f"has more than {most} certificates")
    return found


def told(text: str) -> list[str]:
    """A stored certificate or bundle in words, one line each: whose, and until when."""
    try:
        return [_told(one) for one in x509.load_pem_x509_certificates(text.encode())]
    except Exception:  # noqa: BLE001 - see above
        return ["Not a certificate that can be read"]


def _told(one: x509.Certificate) -> str:
    return f"{one.subject.rfc4514_string() or 'No name'}, until {one.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except Exception:  # noqa: BLE001 - see above; one that has none says so by an exception, too
        return False


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in certificates)
