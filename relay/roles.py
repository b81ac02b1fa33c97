"""The database roles that Relay uses, and how a cluster and a database are made ready for them.

    relay_owner      cannot log in; owns every table, sequence and function of ours
    relay_migrator   logs in to migrate, and becomes the owner for that (SET ROLE); by itself it may do nothing
    relay_runtime    logs in as the web server and the workers; owns nothing and creates nothing
    relay_reader     logs in to look; SELECT only, and no secret

What the last two may do with each table is in `relay.grants`. Nothing here needs Django: the embedded server is made
ready before there is a connection of Django's.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

OWNER = "relay_owner"
MIGRATOR = "relay_migrator"
RUNTIME = "relay_runtime"
READER = "relay_reader"

LOGIN = {OWNER: False, MIGRATOR: True, RUNTIME: True, READER: True}
SCHEMA = "public"

_ATTRIBUTES = "NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"

Connection = psycopg.Connection[Any]


def missing(connection: Connection) -> list[str]:
    """Which of the roles the cluster does not have."""
    rows = connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [list(LOGIN)]).fetchall()
    known = {name for (name,) in rows}
    return [name for name in LOGIN if name not in known]


def creation(role: str, password: sql.Composable | None = None) -> sql.Composed:
    """The statement that makes one of the roles. Where sockets are trusted it needs no password."""
    login = "LOGIN" if LOGIN[role] else "NOLOGIN"
    secret = sql.SQL(" PASSWORD {}").format(password) if password is not None else sql.SQL("")
    return sql.SQL(f"CREATE ROLE {{}} {login} {_ATTRIBUTES}{{}}").format(sql.Identifier(role), secret)


def membership() -> sql.Composed:
    """The migrator may become the owner. It inherits nothing, so it is nobody until it does."""
    return sql.SQL("GRANT {} TO {}").format(sql.Identifier(OWNER), sql.Identifier(MIGRATOR))


def database_rights(database: str) -> list[sql.Composed]:
    """Who may connect to a database and use its schema, in statements that its owner may run as often as they like.

    What PostgreSQL grants to everybody goes: CONNECT, TEMPORARY, and the schema.
    """
    words = {
        "database": sql.Identifier(database),
        "schema": sql.Identifier(SCHEMA),
        "owner": sql.Identifier(OWNER),
        "logins": sql.SQL(", ").join(sql.Identifier(role) for role, may in LOGIN.items() if may),
        "users": sql.SQL(", ").join(map(sql.Identifier, (RUNTIME, READER))),
    }
    return [
        sql.SQL(text).format(**words)
        for text in (
            "REVOKE ALL ON DATABASE {database} FROM PUBLIC",
            "GRANT CONNECT ON DATABASE {database} TO {logins}",
            "REVOKE ALL ON SCHEMA {schema} FROM PUBLIC",
            "GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner}",
            "GRANT USAGE ON SCHEMA {schema} TO {users}",
        )
    ]
