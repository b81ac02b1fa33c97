"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

EVERY_S = 0.02


def wait_until(condition: Callable[[], Seen], seconds: float, what: str) -> Seen:
    """Ask `condition` until its answer is true and give that answer; AssertionError naming `what` after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        assert time.monotonic() < until, f"after {seconds} s still not: {what} (last seen: {seen!r})"
        time.sleep(EVERY_S)
