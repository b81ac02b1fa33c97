"""Ids that name themselves: `evt_`, `ep_`, `dlv_`, `key_`, `run_`, `qry_` before the 32 hexadecimal digits of a UUID.

A tenant's id is text of its own (`default`, `ten_…`) and is part of every operation id.
"""

from __future__ import annotations

import os
import re
import time
import uuid

EVENT, ENDPOINT, DELIVERY, KEY, QUESTION = "evt_", "ep_", "dlv_", "key_", "qry_"

_HEX = re.compile(r"[0-9a-f]{32}\Z")


class MalformedId(ValueError):
    """The text is not an id of the wanted kind."""


def render(prefix: str, value: uuid.UUID) -> str:
    """`evt_0199…` from a UUID."""
    return prefix + value.hex


def parse(prefix: str, text: str) -> uuid.UUID:
    """The UUID inside `text`; `MalformedId` when it is not `prefix` and 32 lower-case hexadecimal digits."""
    rest = text.removeprefix(prefix)
    if rest == text or not _HEX.match(rest):
        raise MalformedId(f"not an id of the form {prefix}…: {text[:60]!r}")
    return uuid.UUID(hex=rest)


def time_ordered() -> uuid.UUID:
    """A version 7 UUID (RFC 9562): 48 bits of Unix milliseconds, then random bits."""
    bits = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10), "big")
    return uuid.UUID(int=bits & ~(0xF << 76) & ~(0x3 << 62) | (0x7 << 76) | (0x2 << 62))
