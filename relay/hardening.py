"""A database of one's own, brought to Relay's roles: who owns the tables, who runs, who migrates, who reads.

Everything is one transaction, so that a dry run is a real one that is rolled back: what it says is what would happen.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connection, transaction
from psycopg import sql

from relay import grants, roles

PASSWORDS = {
    roles.RUNTIME: "RELAY_RUNTIME_PASSWORD",
    roles.MIGRATOR: "RELAY_MIGRATOR_PASSWORD",
    roles.READER: "RELAY_READER_PASSWORD",
}
"""Where the environment may give the password of a role that is made."""

_ATTRIBUTES = ("rolsuper", "rolcreatedb", "rolcreaterole", "rolreplication", "rolbypassrls", "rolinherit")
_OURS = ("ledger\\_%", "deliveries\\_%", "relay\\_%", "fenced\\_%")


class CannotHarden(RuntimeError):
    """Nothing was changed; the text says why, in whole sentences."""


@dataclass(slots=True, repr=False)
class Done:
    """What was done, in sentences and in SQL without secrets; `passwords` are those that were made up. No repr."""

    sentences: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)


def harden(*, dry_run: bool = False) -> Done:
    """Bring Django's database to the roles, by whoever its connection is; repeating it changes nothing more.

    Needs a superuser, or somebody with CREATEROLE who owns the database and the tables. Raises `CannotHarden`, and
    Django's errors where PostgreSQL refuses.
    """
    done = Done()
    with transaction.atomic():
        _refuse_other_roles()
        _make_roles(done)
        with _membership(done):
            _move(done)
            _run(done, f"SET LOCAL ROLE {roles.OWNER}")
            changed = grants.statements(grants.Present())
            for statement in changed:
                _run(done, statement)
            _run(done, "RESET ROLE")
        done.sentences.append(
            f"{roles.RUNTIME} has the rights that Relay's statements need and {roles.READER} may read all but secrets; "
            "every other right of theirs, and of PUBLIC, on Relay's tables and functions is gone."
        )
        if dry_run:
            transaction.set_rollback(True)
    return done


def _rows(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


def _run(done: Done, statement: str | sql.Composed, shown: sql.Composed | None = None) -> None:
    raw: psycopg.Connection[Any] = connection.connection
    text = shown if shown is not None else statement
    done.statements.append(text if isinstance(text, str) else text.as_string(raw))
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _refuse_other_roles() -> None:
    """A role of one of these names that was made for something else is not ours to use."""
    wrong = []
    query = f"SELECT rolname, rolcanlogin, {', '.join(_ATTRIBUTES)} FROM pg_roles WHERE rolname = ANY(%s)"  # noqa: S608
    for name, login, *attributes in _rows(query, list(roles.LOGIN)):
        strange = [word.removeprefix("rol") for word, has in zip(_ATTRIBUTES, attributes, strict=True) if has]
        if login != roles.LOGIN[name]:
            strange.append("login" if login else "no login")
        if strange:
            wrong.append(f"{name} ({', '.join(strange)})")
    for name, of in _rows(
        "SELECT member::regrole::text, roleid::regrole::text FROM pg_auth_members"
        " WHERE member::regrole::text = ANY(%s)",
        list(roles.LOGIN),
    ):
        if (name, of) != (roles.MIGRATOR, roles.OWNER):
            wrong.append(f"{name} (member of {of})")
    if wrong:
        raise CannotHarden(
            f"These roles exist already and are not as Relay makes them: {'; '.join(sorted(wrong))}. If they are "
            "Relay's, change them with ALTER ROLE or REVOKE and run this again; if they are something else's, Relay "
            "needs a PostgreSQL server on which these names are free."
        )


def _make_roles(done: Done) -> None:
    raw: psycopg.Connection[Any] = connection.connection
    done.made = roles.missing(raw)
    for role in done.made:
        if not roles.LOGIN[role]:
            _run(done, roles.creation(role))
            done.sentences.append(f"Made {role}, which cannot log in.")
            continue
        given = os.environ.get(PASSWORDS[role], "")
        password = given or secrets.token_urlsafe(24)
        if not given:
            done.passwords[role] = password
        # Only the verifier goes to the server, whose log might keep the statement.
        verifier = raw.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        _run(done, roles.creation(role, sql.Literal(verifier)), roles.creation(role, sql.Literal("…")))
        done.sentences.append(
            f"Made {role}, with " + (f"the password in {PASSWORDS[role]}." if given else "a password that was made up.")
        )
    if not _rows(
        "SELECT 1 FROM pg_auth_members WHERE member::regrole::text = %s AND roleid::regrole::text = %s",
        roles.MIGRATOR,
        roles.OWNER,
    ):
        _run(done, roles.membership())
        done.sentences.append(f"{roles.MIGRATOR} may become {roles.OWNER}, and does so to migrate.")


class _membership:  # noqa: N801 - reads as the noun that it is
    """Makes whoever runs this a member of the owner for a time: only a member may give it tables. Superusers may."""

    def __init__(self, done: Done) -> None:
        self.done = done
        ((superuser, me),) = _rows("SELECT rolsuper, rolname FROM pg_roles WHERE rolname = current_user")
        self.me = None if superuser else sql.Identifier(me)

    def __enter__(self) -> None:
        if self.me is not None:
            _run(self.done, sql.SQL("GRANT {} TO {}").format(sql.Identifier(roles.OWNER), self.me))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.me is not None and kind is None:
            _run(self.done, sql.SQL("REVOKE {} FROM {}").format(sql.Identifier(roles.OWNER), self.me))


def _move(done: Done) -> None:
    """Who may use the database and its schema; then tables, with the sequences that they own, and functions."""
    ((database,),) = _rows("SELECT current_database()")
    for statement in roles.database_rights(database):
        _run(done, statement)
    done.sentences.append(
        f"Only {', '.join(sorted(role for role, login in roles.LOGIN.items() if login))}, the owner of {database} and "
        "superusers may connect to it; PUBLIC has no right in it any more. Grant CONNECT to whoever else needs it."
    )
    moved = 0
    for (table,) in _rows(
        "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relname = ANY(%s)"
        " AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) <> %s ORDER BY relname",
        roles.SCHEMA,
        list(grants.TABLES),
        roles.OWNER,
    ):
        _run(done, _owned("TABLE", sql.Identifier(roles.SCHEMA, table)))
        moved += 1
    for name, arguments in _rows(
        "SELECT proname, pg_get_function_identity_arguments(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace"
        " AND proname LIKE ANY(%s) AND pg_get_userbyid(proowner) <> %s ORDER BY proname",
        roles.SCHEMA,
        list(_OURS),
        roles.OWNER,
    ):
        signature = sql.SQL("{}({})").format(sql.Identifier(roles.SCHEMA, name), sql.SQL(arguments))
        _run(done, _owned("FUNCTION", signature))
        moved += 1
    if moved:
        done.sentences.append(f"{roles.OWNER} owns Relay's tables, their sequences, and its functions ({moved} moved).")


def _owned(kind: str, what: sql.Composable) -> sql.Composed:
    return sql.SQL(f"ALTER {kind} {{}} OWNER TO {{}}").format(what, sql.Identifier(roles.OWNER))
