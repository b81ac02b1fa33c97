"""The named statements of `deliveries/sql/`."""

from __future__ import annotations

from pathlib import Path

from ledger.statements import load

DELIVERIES = load(Path(__file__).parent / "sql")

ASKING = 0x41736B21
"""The first half of the advisory lock that who asks a receiver about an operation holds meanwhile: "Ask!"."""
