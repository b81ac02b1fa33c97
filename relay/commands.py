"""What our management commands share."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Tags, run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from relay.database import away
from relay.env import stop
from relay.server_account import tell


class PlainChecks(BaseCommand):
    """A command whose system checks speak in lines, one for each finding; an error ends it with exit code 2."""

    looks_into_the_database = False
    """Whether it also runs the checks that ask the database. One that is away is told of elsewhere, and is no error."""

    def check(self, *args: Any, **options: Any) -> None:
        found = [message for message in run_checks() if not message.is_silenced()]
        if self.looks_into_the_database:
            found += [message for message in _of_the_database() if not message.is_silenced()]
        wrong = [" ".join(f"{one.msg} {one.hint or ''}".split()) for one in found if one.is_serious()]
        for one in found:
            if not one.is_serious():
                tell(" ".join(f"warning: {one.msg} {one.hint or ''}".split()))
        if wrong:
            stop("\n".join(wrong))


def _of_the_database() -> list[CheckMessage]:
    """What the checks find that ask the database; nothing when it is away. No connection stays: processes are forked
    after this."""
    known = {(found.id, found.msg) for found in run_checks(tags=[Tags.database])}
    try:
        found = run_checks(tags=[Tags.database], databases=[DEFAULT_DB_ALIAS])
    except OperationalError:
        return []
    finally:
        connections.close_all()
    return [message for message in found if (message.id, message.msg) not in known]


class DatabaseCommand(PlainChecks):
    """A command that needs the database, and says so in one sentence when it is not there."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except OperationalError as error:
            raise CommandError(away(error)) from error
