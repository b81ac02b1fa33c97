"""The channel on which dispatchers listen for new work."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections

CHANNEL = "relay_due"


def notify() -> None:
    """Tell every listening dispatcher that something is due; inside a transaction, when it is committed. Losing it
    costs a poll, never a delivery."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
