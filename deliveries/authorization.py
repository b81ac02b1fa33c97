"""What an endpoint authenticates with: kept sealed, each part bound to its row and its place, and opened to be sent.

Opened parts stay in the memory of the process that sends, so that a send costs no decryption. None of them is in a
message, a log line or a repr. `SealBroken` when the key ring cannot open one: then nothing is sent without it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from deliveries.models import Endpoint
from deliveries.rules import auth as kinds
from deliveries.sealing import seal, unseal
from deliveries.transport.base import PUBLIC, Headers, Tls

HEADERS, AUTH, CLIENT_KEY = "headers", "auth", "client_key"
_REMEMBERED = 4096


def row_of(endpoint_id: UUID, place: str) -> str:
    """What a sealed part of an endpoint is bound to."""
    return f"endpoint:{endpoint_id}:{place}"


def seal_headers(endpoint_id: UUID, headers: Mapping[str, str]) -> str:
    """Secret headers as they are stored; nothing for none."""
    return seal(json.dumps(dict(headers)), row_of(endpoint_id, HEADERS)) if headers else ""


def seal_auth(endpoint_id: UUID, auth: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What may be shown of a whole `auth`, and its secret, sealed."""
    secret = kinds.SECRET[auth["kind"]]
    shown = {name: value for name, value in auth.items() if name != secret and value is not None}
    return shown, seal(json.dumps({secret: auth[secret]}), row_of(endpoint_id, AUTH))


def seal_key(endpoint_id: UUID, key: str) -> str:
    """A client key as it is stored; nothing for none."""
    return seal(key, row_of(endpoint_id, CLIENT_KEY)) if key else ""


def secret_headers(endpoint: Endpoint) -> Headers:
    """The endpoint's secret headers with their values."""
    return _headers(endpoint.endpoint_id, endpoint.secret_headers_sealed) if endpoint.secret_headers_sealed else ()


def secret_of(endpoint: Endpoint) -> str:
    """The secret part of the endpoint's `auth`: a password, a token, or a client's secret."""
    return _secret(endpoint.endpoint_id, endpoint.auth_sealed)


def client_key(endpoint: Endpoint) -> str:
    """The endpoint's client key, PEM."""
    if not endpoint.client_key_sealed:
        return ""
    return unseal(endpoint.client_key_sealed, row_of(endpoint.endpoint_id, CLIENT_KEY))


def authorization(endpoint: Endpoint) -> str:
    """The value of the `authorization` header of a basic or bearer endpoint."""
    secret, auth = secret_of(endpoint), endpoint.auth or {}
    if auth["kind"] == kinds.BEARER:
        return f"Bearer {secret}"
    return basic(auth["username"], secret)


def basic(username: str, password: str) -> str:
    """RFC 7617, in UTF-8."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode('ascii')}"


def tls(endpoint: Endpoint) -> Tls:
    """What a connection to the endpoint shows, and which authorities it trusts."""
    if not (endpoint.client_key_sealed or endpoint.ca_certificates):
        return PUBLIC
    return _tls(endpoint.endpoint_id, endpoint.client_key_sealed, endpoint.client_certificate, endpoint.ca_certificates)


@lru_cache(maxsize=_REMEMBERED)
def _headers(endpoint_id: UUID, sealed: str) -> Headers:
    return tuple(json.loads(unseal(sealed, row_of(endpoint_id, HEADERS))).items())


@lru_cache(maxsize=_REMEMBERED)
def _secret(endpoint_id: UUID, sealed: str) -> str:
    (secret,) = json.loads(unseal(sealed, row_of(endpoint_id, AUTH))).values()
    return str(secret)


@lru_cache(maxsize=1024)
def _tls(endpoint_id: UUID, sealed: str, certificate: str, authorities: str) -> Tls:
    key = unseal(sealed, row_of(endpoint_id, CLIENT_KEY)) if sealed else ""
    return Tls(authorities.encode(), certificate.encode() if key else b"", key.encode())
