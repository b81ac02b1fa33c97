"""Huey's tables come from a migration; they must be the ones that Huey itself would make."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from huey.storage import PostgresStorage

from tests.support.database import unguarded

DESCRIBE = """
SELECT c.relname, c.relkind::text, pg_get_indexdef(c.oid), a.attname, format_type(a.atttypid, a.atttypmod),
       a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relname LIKE 'huey\\_%%'
 ORDER BY c.relname, a.attnum
"""


def described() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(DESCRIBE)
        return list(cursor.fetchall())


@pytest.mark.django_db
def test_the_migrated_tables_are_the_ones_huey_would_make() -> None:
    migrated = described()
    assert migrated
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("DROP TABLE huey_kv, huey_schedule, huey_task, huey_counter")
        for statement in PostgresStorage("relay", create_tables=False, table_prefix="huey").ddl:
            cursor.execute(statement)
    assert described() == migrated
