"""Loads the named statements of `ledger/sql/` (and of other apps' `sql/` folders) and runs them.

This is the only place that opens a cursor for a write. A `.sql` file holds the statements of one aggregate:

    -- name: settle          a statement; its full name is `operation.settle` in operation.sql
    -- fragment: protected   text that statements include with {{run.protected}}

Parameters are psycopg's named ones, bound by the server. Every statement is sent with a comment that carries its name,
so that `pg_stat_activity` speaks our names. The parameter `statement` is always the statement's own name.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.rows import class_row

Row = TypeVar("Row")
Result = TypeVar("Result")

_HEAD = re.compile(r"^-- (name|fragment): ([a-z0-9_]+)$", re.MULTILINE)
_INCLUDE = re.compile(r"\{\{([a-z0-9_]+\.[a-z0-9_]+)\}\}")
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)([sbt])(::\w+(?:\[\])?)?")
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM|MERGE INTO)\b")  # `FOR UPDATE` too: a lock needs a right

SCHEMA = "public"
PREFIX = "fenced_"

RETRIED_SQLSTATES = frozenset({"40001", "40P01"})
RETRY_BUDGET = 5


class Statement:
    """One named statement. `rows` runs it; it sees and changes whatever the current transaction may.

    A statement that `writes` is run by calling its `function`, which `ledger.functions` has installed; any other is
    sent as it stands.
    """

    def __init__(self, name: str, sql: str) -> None:
        self.name = name
        self.sql = sql
        self.writes = _WRITES.search(sql) is not None

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Each parameter in the order of its first use, as it is written there: with its format and its cast."""
        found: dict[str, str] = {}
        for match in _PARAMETER.finditer(self.sql):
            found.setdefault(match[1], match[0])
        return found

    @cached_property
    def positional(self) -> str:
        """The text with `$1`, `$2` … for the parameters, in their order."""
        places = {name: f"${place}" for place, name in enumerate(self.parameters, 1)}
        return _PARAMETER.sub(lambda match: places[match[1]] + (match[3] or ""), self.sql).replace("%%", "%")

    @cached_property
    def function(self) -> str:
        """The name of its function: it says which text it was made from. At most 63 bytes, as PostgreSQL wants it."""
        digest = hashlib.sha256(self.sql.encode()).hexdigest()[:12]
        return f"{PREFIX}{self.name.replace('.', '_')}_{digest}"

    @cached_property
    def sent(self) -> bytes:
        """What is sent to PostgreSQL: the call of its function, or the text itself."""
        if not self.writes:
            return self.sql.encode()
        arguments = ", ".join(self.parameters.values())
        return f"/* relay: {self.name} */ SELECT * FROM {SCHEMA}.{self.function}({arguments})".encode()  # noqa: S608

    def rows(self, row: type[Row], parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """Run, and answer each row as `row`, whose fields are the statement's columns by name.

        Errors are Django's (`django.db.OperationalError` and so on), with psycopg's as their cause.
        """
        wrapper = connections[DEFAULT_DB_ALIAS]
        wrapper.ensure_connection()
        connection: psycopg.Connection[Any] = wrapper.connection
        with wrapper.wrap_database_errors, psycopg.Cursor(connection, row_factory=class_row(row)) as cursor:
            cursor.execute(self.sent, {**(parameters or {}), "statement": self.name}, prepare=True)
            return cursor.fetchall()


def load(folder: Path) -> dict[str, Statement]:
    """Every statement of a folder of `.sql` files by its full name, with its fragments (and the ledger's) included."""
    fragments = dict(_FRAGMENTS)
    bodies: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        heads = list(_HEAD.finditer(text))
        for head, following in zip(heads, [*heads[1:], None], strict=True):
            body = text[head.end() : following.start() if following else None]
            name = f"{path.stem}.{head.group(2)}"
            (fragments if head.group(1) == "fragment" else bodies)[name] = _COMMENT.sub("", body).strip()
    if folder == LEDGER_SQL:
        _FRAGMENTS.update(fragments)

    def included(match: re.Match[str]) -> str:
        return _INCLUDE.sub(included, fragments[match.group(1)])

    return {
        name: Statement(name, f"/* relay: {name} */ {_INCLUDE.sub(included, body)}") for name, body in bodies.items()
    }


_FRAGMENTS: dict[str, str] = {}
LEDGER_SQL = Path(__file__).parent / "sql"
LEDGER = load(LEDGER_SQL)


@contextmanager
def session(**settings: str) -> Iterator[None]:
    """Settings of this thread's connection for a time, also of one that takes the place of a lost one meanwhile."""
    wrapper = connections[DEFAULT_DB_ALIAS]

    def apply(connection: BaseDatabaseWrapper, **_: object) -> None:
        if connection is wrapper:
            with connection.cursor() as cursor:
                for name, value in settings.items():
                    cursor.execute("SELECT set_config(%s, %s, false)", (name, value))

    if wrapper.connection is not None:
        apply(wrapper)
    connection_created.connect(apply, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(apply)
        if wrapper.connection is not None and wrapper.is_usable():
            with wrapper.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name = ANY(%s)", (list(settings),)
                )


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE that PostgreSQL gave, or None where the connection failed before it could."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def in_transaction(work: Callable[[], Result]) -> Result:
    """Run `work` in one short transaction; a serialization failure or deadlock (40001, 40P01) retries the whole of it.

    Guarantee: what `work` wrote is committed when this returns, and nothing of it when it raises a database error that
    PostgreSQL reported. Limit: when the connection is lost around COMMIT the outcome is unknown; the caller reads back.
    """
    for attempt in range(1, RETRY_BUDGET + 1):
        try:
            with transaction.atomic():
                return work()
        except OperationalError as error:
            if sqlstate(error) not in RETRIED_SQLSTATES or attempt == RETRY_BUDGET:
                raise
            # A rival is about to commit: a few milliseconds at random, so that two losers do not meet again.
            time.sleep(random.uniform(0.001, 0.01) * attempt)  # noqa: S311
    raise AssertionError("unreachable: the loop returns or raises")
