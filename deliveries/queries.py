"""The named statements of `deliveries/sql/`."""

from __future__ import annotations

from pathlib import Path

from ledger.statements import load

DELIVERIES = load(Path(__file__).parent / "sql")
