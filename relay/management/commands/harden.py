from __future__ import annotations

from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connections

from relay import database, hardening, roles
from relay.commands import DatabaseCommand
from relay.env import BadVariable, Reader

NEXT = {
    "DATABASE_URL": (roles.RUNTIME, "the web server and the workers"),
    "RELAY_MIGRATE_DATABASE_URL": (roles.MIGRATOR, "`manage.py migrate` and `manage.py up`, which need it to migrate"),
}


class Command(DatabaseCommand):
    help = (
        "Give Relay's tables in a database of your own to a role that cannot log in, and leave the role that Relay "
        "runs as only the rights that its statements need. May be repeated."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--admin-url",
            help="postgresql:// URL of a superuser, or of a role with CREATEROLE that owns the database and its "
            "tables; DATABASE_URL if left out",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="print the SQL, without secrets; do it in a transaction, and undo it"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.RELAY_EMBEDDED:
            raise CommandError("The embedded database has these roles: `manage.py up` sees to it at each start.")
        dry_run = options["dry_run"]
        try:
            with _login(options["admin_url"]):
                done = hardening.harden(dry_run=dry_run)
        except hardening.CannotHarden as cannot:
            raise CommandError(str(cannot)) from cannot
        except ProgrammingError as refused:
            raise CommandError(
                f"Nothing was changed. PostgreSQL refused: {' '.join(str(refused).split())}. Give --admin-url of a "
                "superuser, or of a role with CREATEROLE that owns the database and Relay's tables."
            ) from refused
        if dry_run:
            for statement in done.statements:
                self.stdout.write(f"{statement};")
            self.stdout.write("-- Nothing was changed.")
            return
        for sentence in done.sentences:
            self.stdout.write(sentence)
        self.stdout.write("\nSet now, and start Relay again:")
        for variable, (role, users) in NEXT.items():
            self.stdout.write(f"  {variable}={_url(role, done)}\n    for {users}")
        if roles.READER in done.passwords:
            self.stdout.write(f"To look without being able to change anything: {_url(roles.READER, done)}")
        if done.passwords:
            self.stdout.write("These passwords are not shown again.")


def _login(url: str | None) -> AbstractContextManager[None]:
    if url is None:
        return nullcontext()
    try:
        parameters = Reader({"--admin-url": url}).database("--admin-url")
    except BadVariable as bad:
        raise CommandError(str(bad), returncode=2) from bad
    if parameters is None or parameters["dbname"] != settings.DATABASES[DEFAULT_DB_ALIAS]["NAME"]:
        raise CommandError("--admin-url must name the same database as DATABASE_URL.", returncode=2)
    return database.logged_in_as(database.settings_for(parameters))


def _url(role: str, done: hardening.Done) -> str:
    """A URL of the database that DATABASE_URL names, with a password if it was made up now."""
    where = connections[DEFAULT_DB_ALIAS].settings_dict
    if role in done.passwords:
        password = quote(done.passwords[role])
    else:
        password = f"<the one in {hardening.PASSWORDS[role]}>" if role in done.made else "<as it was>"
    host, port = str(where.get("HOST") or ""), str(where.get("PORT") or "")
    place = "" if host.startswith("/") else f"{host}{f':{port}' if port else ''}"
    socket = f"?host={quote(host, safe='')}{f'&port={port}' if port else ''}" if host.startswith("/") else ""
    return f"postgresql://{role}:{password}@{place}/{quote(str(where['NAME']))}{socket}"
