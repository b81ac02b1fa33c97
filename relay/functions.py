"""All statements of the project that write, and their functions in the database. How and why: `ledger.functions`."""

from __future__ import annotations

from deliveries.queries import DELIVERIES
from ledger import functions
from ledger.statements import LEDGER

STATEMENTS = (*LEDGER.values(), *DELIVERIES.values())


def install() -> list[str]:
    """Make the functions what this version's files say; answers those made anew. For the owner of the tables."""
    return functions.install(STATEMENTS)


def missing() -> list[str]:
    """The functions that this version calls and the database does not have."""
    return functions.missing(STATEMENTS)
