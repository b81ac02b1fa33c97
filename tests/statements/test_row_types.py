"""Every named statement is prepared against the migrated schema, and its columns are the fields it is read into."""

from __future__ import annotations

import dataclasses
import re
import typing
import uuid
from datetime import datetime
from types import NoneType
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql as composed

from ledger.statements import Statement
from tests.statements.readers import every_statement, readers

PARAMETER = re.compile(r"%\(([a-z_]+)\)[sbt]")

TYPES: dict[str, type] = {
    "uuid": uuid.UUID,
    "text": str,
    "int4": int,
    "int8": int,
    "bool": bool,
    "bytea": bytes,
    "timestamptz": datetime,
    "float8": float,
}
"""What psycopg makes of a column's type. A type that is not here is none that a row type could name."""

EVERY = every_statement()
IDS = [f"{registry.lower()}:{statement.name}" for registry, statement in EVERY]


def numbered(statement: Statement) -> tuple[str, list[str]]:
    """The text as the server sees it, with $1, $2 … for its parameters, and their names in that order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return PARAMETER.sub(number, statement.sql).replace("%%", "%"), names


def prepared_columns(statement: Statement) -> dict[str, str]:
    """Result columns and their type names, as the server describes them after PREPARE; nothing is executed."""
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    text, _ = numbered(statement)
    prepared = raw.pgconn.prepare(b"described", text.encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message.decode()
    described = raw.pgconn.describe_prepared(b"described")
    with raw.cursor() as cursor:
        cursor.execute(composed.SQL("DEALLOCATE described"))
        found: dict[str, str] = {}
        for number in range(described.nfields):
            name = described.fname(number)
            assert name is not None
            assert name.decode() not in found, f"two columns are called {name.decode()}"
            (found[name.decode()],) = cursor.execute(
                "SELECT typname FROM pg_type WHERE oid = %s", [described.ftype(number)]
            ).fetchone() or ("?",)
        return found


def plain(annotation: Any) -> type:
    """`int` of `int | None`."""
    (only,) = {kind for kind in typing.get_args(annotation) or (annotation,) if kind is not NoneType}
    assert isinstance(only, type)
    return only


@pytest.mark.django_db
@pytest.mark.parametrize(("registry", "statement"), EVERY, ids=IDS)
def test_a_statement_is_prepared_and_its_columns_are_the_fields_of_its_row(registry: str, statement: Statement) -> None:
    columns = prepared_columns(statement)
    row_types = readers().get((registry, statement.name))
    assert row_types, f"no manager runs {statement.name}"
    for row_type in row_types:
        assert dataclasses.is_dataclass(row_type)
        hints = typing.get_type_hints(row_type)
        fields = {field.name: plain(hints[field.name]) for field in dataclasses.fields(row_type)}
        assert {name: TYPES[kind] for name, kind in columns.items()} == fields


def test_no_reader_names_a_statement_that_does_not_exist() -> None:
    known = {(registry, statement.name) for registry, statement in EVERY}
    assert set(readers()) == known


@pytest.mark.parametrize(("registry", "statement"), EVERY, ids=IDS)
def test_a_statement_speaks_its_name_and_lists_its_columns(registry: str, statement: Statement) -> None:
    assert statement.sql.startswith(f"/* relay: {statement.name} */ ")
    assert not re.search(r"\*\s+FROM|\bSELECT\s+\*|\bRETURNING\s+\*|\.\*", statement.sql), "columns are named"
    assert "{{" not in statement.sql
    assert ";" not in statement.sql


@pytest.mark.parametrize(("registry", "statement"), EVERY, ids=IDS)
def test_a_judgement_after_a_lock_reads_the_clock_itself(registry: str, statement: Statement) -> None:
    """`(SELECT clock_timestamp())` may have been read before the wait: it is for index conditions of first CTEs."""
    locked = re.search(r"FOR NO KEY UPDATE(?! OF \w+ SKIP LOCKED)", statement.sql)
    if locked:
        assert "(SELECT clock_timestamp())" not in statement.sql[locked.end() :]
    assert not re.search(
        r"\bnow\(\)|current_timestamp|statement_timestamp|transaction_timestamp", statement.sql, re.IGNORECASE
    )
