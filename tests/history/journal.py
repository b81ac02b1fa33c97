"""A journal of every row change of the ledger and its deliveries, written by triggers inside the database.

Who changes a row needs no right on the journal: the trigger's function has it. A change that is rolled back leaves no
entry, and one made with the triggers of others switched off (`session_replication_role = replica`) leaves one still.

Limit: `seq` is not the order of commits. Two transactions on different rows may commit in the other order. For one row
it is right: its writers wait for each other, and each draws its number after it changed the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row

Row = Mapping[str, Any]

KEYS = {
    "ledger_task": "task_id",
    "ledger_run": "run_id",
    "ledger_lease": "run_id",
    "ledger_operation": "operation_key",
    "ledger_dispatch": "operation_key",
    "ledger_takeover": "takeover_id",
    "ledger_fenced_write": "fenced_write_id",
    "ledger_resolution": "resolution_id",
    "deliveries_event": "event_id",
    "deliveries_endpoint": "endpoint_id",
    "deliveries_attempt": "attempt_id",
    "deliveries_acknowledgement": "acknowledgement_id",
}
"""The tables that are journalled, and the key of each."""
LEFT_OUT = ("payload", "response_body", "secret_sealed")
"""Columns that are not journalled: large, or secret."""
FOUND = "FOUND"
"""The `op` of a row that was there before the journal was."""

TABLE = """
CREATE TABLE journal (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    txid bigint NOT NULL DEFAULT txid_current(),
    "table" text NOT NULL,
    op text NOT NULL,
    old jsonb,
    new jsonb,
    application text NOT NULL DEFAULT current_setting('application_name'),
    statement text
)
"""
FUNCTION = """
CREATE FUNCTION journal_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
BEGIN
    INSERT INTO {schema}.journal ("table", op, old, new, statement)
    VALUES (TG_TABLE_NAME, TG_OP,
            CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN to_jsonb(OLD) - {left_out}::text[] END,
            CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN to_jsonb(NEW) - {left_out}::text[] END,
            substring(current_query() FROM '/\\* relay: ([a-z0-9_.]+) \\*/'));
    RETURN NULL;
END $$
"""
TRIGGERS = """
CREATE TRIGGER journal_rows AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION journal_write();
CREATE TRIGGER journal_emptied AFTER TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION journal_write();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER journal_rows;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER journal_emptied;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one row. `statement` is the named statement that made it; None: other SQL."""

    seq: int
    at: datetime
    txid: int
    table: str
    op: str
    old: Row | None
    new: Row | None
    application: str
    statement: str | None

    @property
    def row(self) -> Row:
        """What it left, or what it took away."""
        return self.new if self.new is not None else self.old or {}

    @property
    def key(self) -> tuple[str, Any]:
        return self.table, self.row.get(KEYS[self.table])


@dataclass(frozen=True, slots=True)
class History:
    """Every entry in the order of `seq`, the rows that stood there when it was read, and the database's clock then."""

    entries: tuple[Entry, ...]
    standing: Mapping[tuple[str, Any], Row] = field(repr=False)
    read_at: datetime


def install(dsn: str) -> None:
    """Begin to journal the database of a superuser's `dsn`. What is there already is noted as found."""
    with psycopg.connect(dsn) as connection:
        _remove(connection)
        tables = _tables(connection)
        connection.execute("SET LOCAL timezone = 'UTC'")
        connection.execute(TABLE)
        # Nobody has a right on the journal by default: only its owner, in whose name the function runs.
        connection.execute("REVOKE ALL ON journal FROM PUBLIC")
        schema = connection.execute("SELECT current_schema()").fetchone()
        assert schema is not None
        connection.execute(
            sql.SQL(FUNCTION).format(schema=sql.Identifier(schema[0]), left_out=sql.Literal(list(LEFT_OUT)))
        )
        for table in tables:
            connection.execute(sql.SQL(TRIGGERS).format(table=sql.Identifier(table)))
            connection.execute(
                sql.SQL(
                    'INSERT INTO journal ("table", op, new) SELECT {name}, {found}, to_jsonb(t) - {left_out}::text[] '
                    "FROM {table} AS t"
                ).format(
                    name=sql.Literal(table), found=sql.Literal(FOUND), left_out=sql.Literal(list(LEFT_OUT)),
                    table=sql.Identifier(table),
                )
            )  # fmt: skip


def uninstall(dsn: str) -> None:
    """Take triggers and journal away."""
    with psycopg.connect(dsn) as connection:
        _remove(connection)


def read(dsn: str) -> History:
    """The journal and the rows that stand beside it, of one moment."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SET LOCAL timezone = 'UTC'")
        with connection.cursor(row_factory=class_row(Entry)) as cursor:
            entries = cursor.execute(
                'SELECT seq, at, txid, "table", op, old, new, application, statement FROM journal ORDER BY seq'
            ).fetchall()
        standing: dict[tuple[str, Any], Row] = {}
        for table in _tables(connection):
            rows = connection.execute(
                sql.SQL("SELECT to_jsonb(t) - {left_out}::text[] FROM {table} AS t").format(
                    left_out=sql.Literal(list(LEFT_OUT)), table=sql.Identifier(table)
                )
            )
            for (row,) in rows:
                standing[table, row[KEYS[table]]] = row
        now = connection.execute("SELECT clock_timestamp()").fetchone()
        assert now is not None
        return History(tuple(entries), standing, now[0])


def _remove(connection: psycopg.Connection[Any]) -> None:
    for table in _tables(connection):
        for trigger in ("journal_rows", "journal_emptied"):
            connection.execute(
                sql.SQL("DROP TRIGGER IF EXISTS {trigger} ON {table}").format(
                    trigger=sql.Identifier(trigger), table=sql.Identifier(table)
                )
            )
    connection.execute("DROP FUNCTION IF EXISTS journal_write()")
    connection.execute("DROP TABLE IF EXISTS journal")


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    found = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY(%s)", [list(KEYS)]
    )
    return sorted(name for (name,) in found)
