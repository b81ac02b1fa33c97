"""Statements that write, installed as functions of the database: who may call them need not be able to write.

Every named statement that writes or locks a row becomes a function `fenced_<file>_<name>_<hash>` of the tables' owner,
made from the text of its `.sql` file and from nothing else. The role that Relay runs as may execute these functions,
and holds no right to insert, update or delete in the tables that they write: the fencing conditions cannot be left out,
whatever SQL somebody types with that role's connection.

The hash is of the text, so that two versions of Relay work side by side during a rollout: each calls its own. What a
version no longer wants stays until the next version after it is installed, however often `migrate` is run meanwhile.

A function runs as its owner, therefore with `search_path = pg_catalog, pg_temp` and every name qualified. The plan is
cached as a prepared statement's is; measured, the call costs nothing that can be told from noise.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg import pq, sql

from ledger.statements import PREFIX, SCHEMA, Statement

_OURS = re.compile(r"(?<![\w.])((?:ledger|deliveries)_\w+)")
_CURRENT, _SUPERSEDED = "relay: current", "relay: superseded by "
_SEARCH_PATH = "pg_catalog, pg_temp"


@dataclass(frozen=True, slots=True)
class Definition:
    """A function as it should be: the types of its parameters, the columns of its rows, and its body."""

    name: str
    parameters: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    body: str

    @property
    def arguments(self) -> str:
        """The parameters' types, as they tell functions of one name apart."""
        return ", ".join(self.parameters)

    @property
    def create(self) -> sql.Composed:
        """CREATE FUNCTION. The names and types come from the catalog, the body from a file of this distribution."""
        result = ", ".join(f'"{name}" {kind}' for name, kind in self.columns)
        head = f"({self.arguments}) RETURNS TABLE ({result}) LANGUAGE plpgsql SECURITY DEFINER"
        # Literal SQL of our own: psycopg asks for a literal type there, which text out of a file has not.
        return sql.SQL(f"CREATE FUNCTION {{}}.{{}} {head} SET search_path = {_SEARCH_PATH} AS {{}}").format(
            sql.Identifier(SCHEMA), sql.Identifier(self.name), sql.Literal(self.body)
        )


def qualified(text: str) -> str:
    """`text` with the schema before every name of ours, also of the sequences that it names in quotes."""
    return _OURS.sub(rf"{SCHEMA}.\1", text)


def body_of(statement: Statement) -> str:
    """The body of the statement's function. Its parameters are positional there, and so never taken for columns."""
    return f"\n#variable_conflict use_column\nBEGIN\nRETURN QUERY {qualified(statement.positional)};\nEND"


def define(connection: psycopg.Connection[Any], statement: Statement) -> Definition:
    """What the function of a statement should be, with the types that PostgreSQL gives to its parameters and columns.

    It is prepared under the function's own search path, so that an unqualified name is an error here and now.
    """
    name = f"define_{statement.function}".encode()
    text = qualified(statement.positional).encode()
    with connection.transaction():
        usual = _one(connection, "SELECT current_setting('search_path')")
        _one(connection, "SELECT set_config('search_path', %s, true)", _SEARCH_PATH)
        _ok(connection, connection.pgconn.prepare(name, text))
        described = _ok(connection, connection.pgconn.describe_prepared(name))
        connection.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name.decode())))
        # A local setting outlives the savepoint that this is when a transaction is open.
        _one(connection, "SELECT set_config('search_path', %s, true)", usual)
    parameters = tuple(_type(connection, described.param_type(index)) for index in range(described.nparams))
    columns = tuple(
        ((described.fname(index) or b"").decode(), _type(connection, described.ftype(index)))
        for index in range(described.nfields)
    )
    return Definition(statement.function, parameters, columns, body_of(statement))


def install(statements: Iterable[Statement]) -> list[str]:
    """Make the functions of all statements that write what they should be, in one transaction; answers the names of
    those that were made anew. Functions that the version before did not want any more either are dropped.

    To be called by whoever owns the tables, after every migration. Idempotent: when nothing has changed nothing is
    written.
    """
    wrapper = connections[DEFAULT_DB_ALIAS]
    made = []
    with transaction.atomic():
        wrapper.ensure_connection()
        connection: psycopg.Connection[Any] = wrapper.connection
        installed = _installed(connection)
        wanted = {statement.function: define(connection, statement) for statement in statements if statement.writes}
        for definition in wanted.values():
            there = installed.pop(definition.name, None)
            if there is None or there.shape != _shape_of(definition):
                if there is not None:
                    _drop(connection, there)
                _make(connection, definition)
                made.append(definition.name)
                there = _Installed(definition.name, definition.arguments, (), None)
            _mark(connection, there, _CURRENT)
        superseded = _SUPERSEDED + _fingerprint(wanted)
        for left in installed.values():
            before = left.mark is not None and left.mark.startswith(_SUPERSEDED)
            if before and left.mark != superseded:
                _drop(connection, left)
            else:
                _mark(connection, left, superseded)
    return made


def _fingerprint(names: Iterable[str]) -> str:
    """Which version of the statements this is."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:12]


def missing(statements: Iterable[Statement]) -> list[str]:
    """The functions that these statements call, and that the database does not have or this role may not execute."""
    wanted = [statement.function for statement in statements if statement.writes]
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND proname = ANY(%s)"
            " AND has_function_privilege(oid, 'EXECUTE')",
            [SCHEMA, wanted],
        )
        there = {name for (name,) in cursor.fetchall()}
    return [name for name in wanted if name not in there]


@dataclass(frozen=True, slots=True)
class _Installed:
    name: str
    arguments: str
    shape: tuple[object, ...]
    mark: str | None


def _installed(connection: psycopg.Connection[Any]) -> dict[str, _Installed]:
    """Our functions in the catalog, by name. The hash is part of it, so a name is there once."""
    rows = connection.execute(
        "SELECT proname, pg_get_function_identity_arguments(oid), prosrc, proargnames, prosecdef, proconfig,"
        " ARRAY(SELECT format_type(kind, NULL) FROM unnest(proallargtypes) AS kind), obj_description(oid, 'pg_proc')"
        " FROM pg_proc WHERE pronamespace = to_regnamespace(%s) AND starts_with(proname::text, %s)",
        [SCHEMA, PREFIX],
    ).fetchall()
    return {
        name: _Installed(name, arguments, (source, names, definer, config, kinds), mark)
        for name, arguments, source, names, definer, config, kinds, mark in rows
    }


def _shape_of(definition: Definition) -> tuple[object, ...]:
    unnamed = [""] * len(definition.parameters)
    return (
        definition.body,
        [*unnamed, *(name for name, _ in definition.columns)],
        True,
        [f"search_path={_SEARCH_PATH}"],
        [*definition.parameters, *(kind for _, kind in definition.columns)],
    )


def _make(connection: psycopg.Connection[Any], definition: Definition) -> None:
    connection.execute(definition.create)
    connection.execute(
        sql.SQL(f"REVOKE ALL ON FUNCTION {{}}.{{}}({definition.arguments}) FROM PUBLIC").format(
            sql.Identifier(SCHEMA), sql.Identifier(definition.name)
        )
    )


def _drop(connection: psycopg.Connection[Any], there: _Installed) -> None:
    connection.execute(
        sql.SQL(f"DROP FUNCTION {{}}.{{}}({there.arguments})").format(
            sql.Identifier(SCHEMA), sql.Identifier(there.name)
        )
    )


def _mark(connection: psycopg.Connection[Any], there: _Installed, mark: str) -> None:
    if there.mark != mark:
        connection.execute(
            sql.SQL(f"COMMENT ON FUNCTION {{}}.{{}}({there.arguments}) IS {{}}").format(
                sql.Identifier(SCHEMA), sql.Identifier(there.name), sql.Literal(mark)
            )
        )


def _type(connection: psycopg.Connection[Any], oid: int) -> str:
    return _one(connection, "SELECT format_type(%s::oid, NULL)", oid)


def _one(connection: psycopg.Connection[Any], query: LiteralString, *parameters: object) -> str:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return str(row[0])


def _ok(connection: psycopg.Connection[Any], result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)
    return result
