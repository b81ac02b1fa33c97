"""`/v1/endpoints`: certificates with something in them that nobody here can read, bytes of good ones changed."""

from __future__ import annotations

import ssl

import pytest

from deliveries.models import Endpoint
from deliveries.rules import certificates
from tests.api import rows
from tests.api.rows import URL, Caller
from tests.support.certificates import Authority, Pair
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

AUTHORITY = Authority()
CLIENT = AUTHORITY.sign("client")
OTHER = AUTHORITY.sign("another client")

# DER: object identifiers with the byte of their tag and that of their length
EC_KEY, P_256 = bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06082a8648ce3d030107")
ALTERNATIVE, BASIC = bytes.fromhex("0603551d11"), bytes.fromhex("0603551d13")
COMMON_NAME = bytes.fromhex("0603550403")
VERSION_3 = bytes.fromhex("a003020102")
IS_CA = bytes.fromhex("30030101ff")


def changed(pem: str, old: bytes, new: bytes) -> str:
    """The certificate with the last `old` in its DER replaced; both are equally long."""
    assert len(old) == len(new)
    der = ssl.PEM_cert_to_DER_cert(pem)
    before, found, after = der.rpartition(old)
    assert found
    return ssl.DER_cert_to_PEM_cert(before + new + after)


def last(oid: bytes) -> bytes:
    """Another object identifier of the same arc, one that means nothing."""
    return oid[:-1] + b"\x7f"


CLIENTS = {
    "unknown key algorithm": changed(CLIENT.certificate, EC_KEY, last(EC_KEY)),
    "unknown curve": changed(CLIENT.certificate, P_256, last(P_256)),
    "no point of the curve": changed(CLIENT.certificate, b"\x03\x42\x00\x04", b"\x03\x42\x00\x05"),
    "unknown version": changed(CLIENT.certificate, VERSION_3, VERSION_3[:-1] + b"\x07"),
    "a name that is no text": changed(CLIENT.certificate, COMMON_NAME + b"\x0c\x06c", COMMON_NAME + b"\x0c\x06\xff"),
}
AUTHORITIES = {
    "unknown version": changed(AUTHORITY.pem, VERSION_3, VERSION_3[:-1] + b"\x07"),
    "an extension twice": changed(CLIENT.certificate, ALTERNATIVE, BASIC),
    "unreadable constraints": changed(AUTHORITY.pem, IS_CA, IS_CA[:-1] + b"\x7f"),
    "a name that is no text": changed(AUTHORITY.pem, COMMON_NAME + b"\x0c\x0bR", COMMON_NAME + b"\x0c\x0b\xff"),
}


@pytest.mark.parametrize("certificate", CLIENTS.values(), ids=CLIENTS)
def test_a_client_certificate_that_cannot_be_read_is_refused_by_its_field(certificate: str, mine: Caller) -> None:
    tls = {"client_certificate": certificate, "client_key": CLIENT.key}
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    for answer in (mine.post("/v1/endpoints", {"url": URL, "tls": tls}), mine("PATCH", path, {"tls": tls})):
        assert answer.status_code == 422, answer.content
        assert [error["field"] for error in answer.json()["errors"]] == ["tls.client_certificate"]
        assert CLIENT.key.splitlines()[1] not in answer.content.decode()


@pytest.mark.parametrize("certificate", AUTHORITIES.values(), ids=AUTHORITIES)
def test_an_authority_that_cannot_be_read_is_refused_by_its_field(certificate: str, mine: Caller) -> None:
    tls = {"ca_certificates": AUTHORITY.pem + certificate}
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    for answer in (mine.post("/v1/endpoints", {"url": URL, "tls": tls}), mine("PATCH", path, {"tls": tls})):
        assert answer.status_code == 422, answer.content
        assert [error["field"] for error in answer.json()["errors"]] == ["tls.ca_certificates"]


@pytest.mark.parametrize("certificate", CLIENTS.values(), ids=CLIENTS)
def test_one_that_was_stored_does_no_harm_when_another_key_comes_or_it_is_shown(certificate: str, mine: Caller) -> None:
    good = {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key}
    path = f"/v1/endpoints/{rows.endpoint(mine, tls=good)}"
    with unguarded():
        Endpoint.objects.update(client_certificate=certificate)
    assert certificates.told(certificate)
    answer = mine("PATCH", path, {"tls": {"client_key": OTHER.key}})
    assert [error["field"] for error in answer.json()["errors"]] == ["tls.client_key"]
    assert mine("PATCH", path, {"tls": pair(OTHER)}).status_code == 200


def pair(of: Pair) -> dict[str, str]:
    return {"client_certificate": of.certificate, "client_key": of.key}
