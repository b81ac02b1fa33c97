"""What our management commands share."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError


class DatabaseCommand(BaseCommand):
    """A command that needs the database, and says so in one sentence when it is not there."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except OperationalError as away:
            raise CommandError(
                "The database does not answer: is `manage.py up` running, and are DATABASE_URL and RELAY_DATA_DIR the "
                "same here as there?"
            ) from away
