"""Fixtures of the tests of expunging: callers, and who watches races."""

from __future__ import annotations

from tests.api.conftest import broker_connection, mine, theirs
from tests.races.conftest import observer

__all__ = ["broker_connection", "mine", "observer", "theirs"]
