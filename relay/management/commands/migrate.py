from __future__ import annotations

from django.core.management.commands import migrate

from relay.commands import DatabaseCommand


class Command(DatabaseCommand, migrate.Command):
    """Django's own, with one sentence for a database that is away."""
