from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from relay import functions, grants
from relay.commands import DatabaseCommand
from relay.database import as_migrator
from relay.server_account import tell

MIGRATING = 0x52656C61794D6967  # "RelayMig"


class Command(DatabaseCommand, migrate.Command):
    """Django's own, run as the owner of the tables; then the statements' functions and the other roles' rights are
    brought up to date.

    One sentence for a database that is away, and for one that does not let this login migrate.
    """

    def handle(self, *args: Any, **options: Any) -> None:
        with as_migrator():
            try:
                if options["plan"] or options["check_unapplied"]:
                    super().handle(*args, **options)
                    return
                with _in_turn():
                    super().handle(*args, **options)
                    if _is_whole():
                        functions.install()
                    grants.apply()
            except (DatabaseError, psycopg.Error) as refused:
                if not _lacks_a_right(refused):
                    raise
                raise CommandError(
                    f"The database does not let this login migrate ({' '.join(str(refused).split())}): set "
                    "RELAY_MIGRATE_DATABASE_URL to the login of relay_migrator, as `manage.py harden` told it."
                ) from refused


@contextmanager
def _in_turn() -> Iterator[None]:
    """Inside, nobody else migrates this database: several replicas may start at once. Whoever waited looks anew.

    A lock of the session: it goes with the connection too, whatever became of us.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATING])
        if cursor.fetchone() != (True,):
            tell("Somebody else migrates this database; waiting until that is done.")
            cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATING])
    try:
        yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATING])


def _is_whole() -> bool:
    """Whether every migration is applied: not when one was left out, as asked."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


def _lacks_a_right(error: BaseException | None) -> bool:
    """Whether PostgreSQL's refusal is at the bottom: Django wraps it, or raises its own in its place."""
    while error is not None and not isinstance(error, psycopg.errors.InsufficientPrivilege):
        error = error.__cause__ or error.__context__
    return error is not None
