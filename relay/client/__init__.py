"""A client for Relay's API. It needs `requests` and `msgspec`, and nothing of the server.

    from relay.client import Relay

    with Relay(url="https://relay.example", key="rk_…") as relay:
        relay.send("invoice.paid", {"id": "in_1"})

Whoever receives webhooks needs `relay.client.webhooks` only.
"""

from relay.client.errors import (
    Changed,
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    RelayError,
    Unauthorized,
    Unavailable,
    Unintelligible,
)
from relay.client.relay import Relay
from relay.client.submitting import NewEvent

__all__ = [
    "Changed",
    "Conflict",
    "FieldError",
    "Forbidden",
    "Invalid",
    "Misconfigured",
    "NewEvent",
    "NotFound",
    "Relay",
    "RelayError",
    "Unauthorized",
    "Unavailable",
    "Unintelligible",
]
