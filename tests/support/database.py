"""The test database as processes of their own see it: committed rows only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

from deliveries.models import DEFAULT_TENANT, Tenant
from relay import roles

APPS = ("ledger", "deliveries")
KNOWN = ("dbname", "user", "password", "host", "port")


def login() -> dict[str, str]:
    """libpq's parameters of this session's connection as it logs in: a superuser, in no role."""
    parameters = connection.get_connection_params()
    return {key: str(parameters[key]) for key in KNOWN if parameters.get(key)}


def administrator() -> psycopg.Connection[Any]:
    """A superuser's connection to the server but not to the test database, where every statement is committed."""
    return psycopg.connect(make_conninfo(**{**login(), "dbname": "postgres"}), autocommit=True)


def url() -> str:
    """The DATABASE_URL of this session's test database for processes: a login of the runtime role.

    On a server that is not the session's own that role has no password that we knew: there the superuser logs in and
    is the runtime role from the first statement on.
    """
    parameters = login()
    if settings.RELAY_EMBEDDED:
        parameters["user"] = roles.RUNTIME
    else:
        parameters["options"] = f"-c role={roles.RUNTIME}"
    return f"postgresql:///?{urlencode(parameters, quote_via=quote)}"


def become(role: str) -> None:
    """From now on this session's connections are `role` from their first statement on, whoever logs in."""
    connection.close()
    connection.settings_dict["OPTIONS"]["options"] = f"-c role={role}"


@contextmanager
def unguarded() -> Iterator[None]:
    """Inside, this thread's connection is the superuser's, and no trigger fires: rows may be planted in any state.

    A transaction of its own, or a savepoint of the one that is open: when the block raises, what it wrote is gone, and
    role and triggers are as before, also when the error was the database's.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('role'), current_setting('session_replication_role'),"
            " set_config('role', 'none', true)"
        )
        role, replication, _ = cursor.fetchone() or (None, None, None)
        cursor.execute("SELECT set_config('session_replication_role', 'replica', true)")
        yield
        cursor.execute("SELECT set_config('role', 'none', true)")  # The block may have become somebody else.
        cursor.execute(
            "SELECT set_config('session_replication_role', %s, true), set_config('role', %s, true)", [replication, role]
        )


def lock(table: str, column: str, key: UUID | int) -> None:
    """Lock a row until the transaction that is open ends, as a writer would. The runtime role itself may not."""
    name, where = connection.ops.quote_name(table), connection.ops.quote_name(column)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"SELECT FROM {name} WHERE {where} = %s FOR NO KEY UPDATE", [key])
        assert cursor.rowcount == 1, f"no row of {table} has {column} {key}"


def empty() -> None:
    """Remove every row of ours and every bell that still hangs, but for the tenant that a migration makes."""
    silence()
    models = [model for name in APPS for model in apps.get_app_config(name).get_models()]
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in models)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables}")
    restore()


def restore() -> None:
    """The row that a migration makes, after everything was removed."""
    Tenant.objects.get_or_create(tenant_id=DEFAULT_TENANT, defaults={"name": "Default"})


def silence() -> None:
    """Empty the broker: its queue, its schedule, and what it remembers."""
    settings.HUEY.storage.flush_all()


def scalar(query: str, *parameters: str | int) -> int:
    """The one number that a query answers."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])
