"""Ids that name themselves: `evt_`, `ep_`, `dlv_`, `key_`, `job_`, `qry_` before the 32 hexadecimal digits of a UUID.

A tenant's id is text of its own (`default`, `ten_…`) and is part of every operation id.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from datetime import datetime

EVENT, ENDPOINT, DELIVERY, KEY, JOB, QUESTION = "evt_", "ep_", "dlv_", "key_", "job_", "qry_"

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


def first_at(moment: datetime) -> uuid.UUID:
    """The least version 7 UUID of the millisecond of `moment`; of the first or the last one that it can name."""
    milliseconds = int(moment.timestamp() * 1000)
    return uuid.UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)


_made = 0
_making = threading.Lock()


def time_ordered() -> uuid.UUID:
    """A version 7 UUID (RFC 9562): 48 bits of Unix milliseconds, 12 bits of their fraction (§6.2, method 3), random.

    Guarantee: greater than every one that this process made before: what was accepted later is listed later.
    Limit: between processes the order is that of their clocks.
    """
    global _made
    with _making:
        _made = moment = max(time.time_ns() * 4096 // 1_000_000, _made + 1)
    random = int.from_bytes(os.urandom(8), "big") >> 2
    return uuid.UUID(int=moment >> 12 << 80 | 0x7 << 76 | (moment & 0xFFF) << 64 | 0x2 << 62 | random)
