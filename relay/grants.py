"""What the runtime and the reader may do with each table, sequence and function, and how that is applied.

Every `migrate` that ran as the owner ends with `apply`: first everything is taken away, then the rights below are
given, in one transaction. What is not listed here nobody but the owner may touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db import connection, transaction
from psycopg import sql

import deliveries.grants
import ledger.grants
from ledger.grants import EVERY, Rights
from ledger.statements import PREFIX
from relay.roles import OWNER, READER, RUNTIME, SCHEMA

_CHANGED_BY_PEOPLE = Rights(insert=EVERY, update=EVERY, delete=True)

DJANGO: Mapping[str, Rights] = {
    "auth_group": _CHANGED_BY_PEOPLE,
    "auth_group_permissions": _CHANGED_BY_PEOPLE,
    "auth_permission": Rights(),
    "auth_user": Rights(insert=EVERY, update=EVERY, delete=True, secret=("password",)),
    "auth_user_groups": _CHANGED_BY_PEOPLE,
    "auth_user_user_permissions": _CHANGED_BY_PEOPLE,
    "django_admin_log": Rights(insert=EVERY, delete=True),  # A person's lines go when the person is deleted.
    "django_content_type": Rights(),
    "django_migrations": Rights(),
    "django_session": Rights(insert=EVERY, update=EVERY, delete=True, unread=True),
}
HUEY: Mapping[str, Rights] = {
    "huey_counter": Rights(insert=("queue", "key", "value"), update=("value",), delete=True, unread=True),
    "huey_kv": Rights(insert=("queue", "key", "value"), update=("value",), delete=True, unread=True),
    # Nothing is updated in these two: locking a row needs the right to update one column of it.
    "huey_schedule": Rights(insert=("queue", "data", "timestamp"), update=("timestamp",), delete=True, unread=True),
    "huey_task": Rights(insert=("queue", "data", "priority"), update=("priority",), delete=True, unread=True),
}
TABLES: Mapping[str, Rights] = {**ledger.grants.TABLES, **deliveries.grants.TABLES, **DJANGO, **HUEY}
SEQUENCES = ("huey_schedule_id_seq", "huey_task_id_seq")
FUNCTIONS = ledger.grants.FUNCTIONS
"""Besides the functions of the named statements, which are known by their prefix."""


class Present:
    """What of ours a database has, in its catalog's words."""

    def __init__(self) -> None:
        self.tables = self._names("SELECT c.relname FROM pg_class AS c WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')")
        self.sequences = self._names("SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'S'")
        self.columns: dict[str, list[str]] = {table: [] for table in self.tables}
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT c.relname, a.attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"
                " WHERE c.relnamespace = %s::regnamespace AND c.relname = ANY(%s) AND a.attnum > 0"
                " AND NOT a.attisdropped ORDER BY a.attnum",
                [SCHEMA, list(self.tables)],
            )
            for table, column in cursor.fetchall():
                self.columns[table].append(column)
            cursor.execute(
                "SELECT p.oid::regprocedure::text FROM pg_proc AS p"
                " WHERE p.pronamespace = %s::regnamespace AND p.proowner = %s::regrole AND p.prokind IN ('f', 'p')",
                [SCHEMA, OWNER],
            )
            self.functions = {name.removeprefix(f"{SCHEMA}.") for (name,) in cursor.fetchall()}

    def _names(self, query: str) -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                f"{query} AND c.relnamespace = %s::regnamespace AND c.relowner = %s::regrole", [SCHEMA, OWNER]
            )
            return {name for (name,) in cursor.fetchall()}


def statements(present: Present) -> list[sql.Composed]:
    """Everything that brings the rights of a database of ours to what is listed here, in order."""
    everybody = sql.SQL("PUBLIC, {}, {}").format(sql.Identifier(RUNTIME), sql.Identifier(READER))
    said = [sql.SQL("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC").format()]
    for kind, names in (("TABLE", present.tables), ("SEQUENCE", present.sequences)):
        said += [
            sql.SQL(f"REVOKE ALL ON {kind} {{}} FROM {{}}").format(_named(name), everybody) for name in sorted(names)
        ]
    said += [
        sql.SQL("REVOKE ALL ON FUNCTION {} FROM {}").format(_function(one), everybody)
        for one in sorted(present.functions)
    ]
    for table, rights in TABLES.items():
        if table in present.tables:
            said += _granted(table, rights, present.columns[table])
    said += [_grant("USAGE", "SEQUENCE", _named(one), RUNTIME) for one in SEQUENCES if one in present.sequences]
    said += [
        _grant("EXECUTE", "FUNCTION", _function(one), RUNTIME)
        for one in sorted(present.functions)
        if one in FUNCTIONS or one.startswith(PREFIX)
    ]
    return said


def _granted(table: str, rights: Rights, columns: list[str]) -> list[sql.Composed]:
    on = _named(table)
    said = [_grant("SELECT", "TABLE", on, RUNTIME)]
    for word, named in (("INSERT", rights.insert), ("UPDATE", rights.update)):
        if named == EVERY:
            said.append(_grant(word, "TABLE", on, RUNTIME))
        elif named:
            said.append(_grant(word, "TABLE", on, RUNTIME, [one for one in named if one in columns]))
    if rights.delete:
        said.append(_grant("DELETE", "TABLE", on, RUNTIME))
    if not rights.unread:
        shown = [one for one in columns if one not in rights.secret] if rights.secret else ()
        said.append(_grant("SELECT", "TABLE", on, READER, shown))
    return said


def _grant(right: str, kind: str, on: sql.Composable, role: str, columns: Iterable[str] = ()) -> sql.Composed:
    named = sql.SQL(", ").join(map(sql.Identifier, columns))
    narrowed = sql.SQL(" ({})").format(named) if columns else sql.SQL("")
    return sql.SQL(f"GRANT {right}{{}} ON {kind} {{}} TO {{}}").format(narrowed, on, sql.Identifier(role))


def _named(name: str) -> sql.Identifier:
    return sql.Identifier(SCHEMA, name)


def _function(signature: str) -> sql.Composed:
    """A function with its argument types, as the catalog writes them."""
    name, _, arguments = signature.partition("(")
    return sql.SQL("{}(").format(_named(name)) + sql.SQL(arguments)


def apply() -> bool:
    """Bring the rights to what is listed here; False, and nothing done, when this connection is not the owner."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        if cursor.fetchone() != (OWNER,):
            return False
        for statement in statements(Present()):
            cursor.execute(statement)
    return True
