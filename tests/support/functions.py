"""Statements with another text than their file's, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from deliveries.queries import DELIVERIES
from ledger import functions
from ledger.statements import LEDGER, SCHEMA, Statement
from relay.roles import RUNTIME
from tests.support.database import unguarded


@contextmanager
def swapped(statement: Statement) -> Iterator[None]:
    """Inside, `statement` is run in the place of the one of that name. Its function is there, for the runtime
    role to call, in the transaction that is open, or at once for everybody; and gone afterwards.

    It has the rights of the superuser. Guards fire in it as in any other.
    """
    function = sql.Identifier(SCHEMA, statement.function)
    with unguarded():
        raw: psycopg.Connection[Any] = connection.connection
        raw.execute(functions.define(raw, statement).create)
        raw.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(function, sql.Identifier(RUNTIME)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEDGER if statement.name in LEDGER else DELIVERIES, statement.name, statement)
        yield
    with unguarded():
        connection.connection.execute(sql.SQL("DROP FUNCTION {}").format(function))
