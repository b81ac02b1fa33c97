"""Who is calling where no key is asked for: the receiver of an operation, by its endpoint's signing secret."""

from __future__ import annotations

import logging
import secrets
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from django.http import HttpRequest
from ninja.security.base import AuthBase

from deliveries import ids, rotation, sealing, signing
from deliveries.api.errors import ApiError, invalid_field, malformed
from deliveries.models import Endpoint
from deliveries.queries import DELIVERIES
from ledger.identity import MalformedOperationId, OperationId, parse

log = logging.getLogger("relay.api")

MOST_BYTES = 16_384

_OURS = (ids.EVENT, ids.QUESTION)
_SECTION = 'see "Acknowledging later" in docs/receiving.md'


@dataclass(frozen=True, slots=True)
class _Addressee:
    operation_key: int
    run_id: uuid.UUID
    endpoint_id: uuid.UUID
    secret_sealed: str
    former_secrets: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Receiver:
    """The endpoint that an operation was sent to, by its own signature."""

    operation_key: int
    operation_id: str
    run_id: uuid.UUID
    endpoint_id: uuid.UUID
    message_id: str

    @property
    def actor(self) -> str:
        """What is recorded as the author of its word."""
        return f"acknowledgement of {ids.render(ids.ENDPOINT, self.endpoint_id)}"


class SignedRequest(HttpRequest):
    """A request that passed `EndpointSignature`."""

    auth: Receiver


class EndpointSignature(AuthBase):
    """The headers of Standard Webhooks over the exact body, with the key of the named operation's endpoint for it.

    That key is derived from the endpoint's secret and signs nothing else: with the secret itself Relay signs bodies
    that submitters wrote. Ids like those of Relay's own messages are refused besides.

    A signature that does not fit, an operation that does not exist and somebody else's operation are refused alike,
    and cost alike: one read by index and ten HMACs, however many secrets the endpoint has at this moment. What the
    request alone shows to be wrong costs no read at all.
    """

    openapi_type = "apiKey"
    openapi_in = "header"
    openapi_name = "webhook-signature"

    def __call__(self, request: HttpRequest) -> Receiver:
        length = request.headers.get("Content-Length", "")
        if not length and request.headers.get("Transfer-Encoding"):
            raise ApiError(411, "Send the body with a Content-Length.")
        if length.isdigit() and int(length[:12]) > MOST_BYTES:
            raise ApiError(413, f"An acknowledgement has at most {MOST_BYTES} bytes.")
        message_id = request.headers.get("webhook-id", "")
        timestamp = request.headers.get("webhook-timestamp", "")
        if not signing.is_timely(message_id, timestamp, time.time()):
            raise _not_signed()
        if message_id.startswith(_OURS):
            raise _named_like_ours()
        operation_id = _operation_id(request.body)
        found = _addressee(operation_id)
        signatures = request.headers.get("webhook-signature", "")
        signed = False
        for key in _keys(found or _decoy()):
            signed |= signing.verify(key, message_id, timestamp, signatures, request.body)
        if not signed or found is None:
            raise _not_signed()
        return Receiver(found.operation_key, str(operation_id), found.run_id, found.endpoint_id, message_id)


def _not_signed() -> ApiError:
    return ApiError(
        401,
        "Not signed by the endpoint of this operation: webhook-id (without a full stop), webhook-timestamp (Unix "
        "seconds, at most 5 minutes off) and webhook-signature of Standard Webhooks are needed, over the exact body. "
        f"The key is not the endpoint's secret but one derived from it: {_SECTION}.",
    )


def _named_like_ours() -> ApiError:
    return ApiError(
        401,
        f"A webhook-id that begins with {' or '.join(_OURS)} is of Relay's own messages, and none of them is an "
        f"acknowledgement. Give yours an id of your own, such as msg_…: {_SECTION}.",
    )


def _operation_id(body: bytes) -> OperationId:
    """The operation that the body names, whoever wrote it."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strange:
        raise malformed("The body is not JSON in UTF-8.") from strange
    if not isinstance(fields, dict):
        raise malformed("The body must be a JSON object.")
    named: Any = fields.get("operation")
    if not isinstance(named, str):
        raise invalid_field("operation", "is required, as text")
    try:
        return parse(named)
    except MalformedOperationId as bad:
        raise invalid_field("operation", "must be tenant/run/step/version, as in the idempotency-key header") from bad


def _addressee(operation: OperationId) -> _Addressee | None:
    rows = DELIVERIES["acknowledgement.addressee"].rows(
        _Addressee,
        {
            "tenant_id": operation.tenant_id,
            "run_id": operation.run_id,
            "step_id": operation.step_id,
            "effect_version": operation.effect_version,
        },
    )
    return rows[0] if rows else None


@lru_cache(maxsize=1)
def _decoy() -> _Addressee:
    """Takes the place of an endpoint that is not there, so that its absence cannot be told by the clock."""
    nobody = uuid.UUID(int=0)
    sealed = sealing.seal(signing.new_secret(), rotation.row_of(nobody))
    return _Addressee(0, nobody, nobody, sealed, "[]", datetime.now(UTC))


def _keys(found: _Addressee) -> list[bytes]:
    """The keys under which an acknowledgement is taken from the endpoint at this moment, and as many that nobody knows
    as are needed to make it ten."""
    endpoint = Endpoint(
        endpoint_id=found.endpoint_id,
        secret_sealed=found.secret_sealed,
        former_secrets=msgspec.json.decode(found.former_secrets),
    )
    try:
        keys = [key.derived(signing.ACKNOWLEDGEMENT) for key in rotation.secrets_of(endpoint, found.now)]
    except (sealing.SealBroken, signing.BadSecret):
        # Refused like any other: the caller is told nothing, the operator everything.
        log.exception("the secrets of endpoint %s do not open: its acknowledgements are refused", found.endpoint_id)
        keys = []
    return keys + [secrets.token_bytes(32) for _ in range(signing.MOST_SIGNATURES - len(keys))]
