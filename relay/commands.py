"""What our management commands share."""

from __future__ import annotations

from typing import Any

from django.core.checks import run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from relay.database import away
from relay.env import stop
from relay.server_account import tell


class PlainChecks(BaseCommand):
    """A command whose system checks speak in lines, one for each finding; an error ends it with exit code 2."""

    def check(self, *args: Any, **options: Any) -> None:
        found = [message for message in run_checks() if not message.is_silenced()]
        wrong = [" ".join(f"{one.msg} {one.hint or ''}".split()) for one in found if one.is_serious()]
        for one in found:
            if not one.is_serious():
                tell(" ".join(f"warning: {one.msg} {one.hint or ''}".split()))
        if wrong:
            stop("\n".join(wrong))


class DatabaseCommand(PlainChecks):
    """A command that needs the database, and says so in one sentence when it is not there."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except OperationalError as error:
            raise CommandError(away(error)) from error
