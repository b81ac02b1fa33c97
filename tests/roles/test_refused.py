# ruff: noqa: S608 - the statements are made of our own names
"""What PostgreSQL refuses to somebody who has the runtime's login, or the reader's, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import make_conninfo
from pytest_django.plugin import DjangoDbBlocker

from ledger import grants as of_ledger
from relay import roles
from tests.support import database

LEDGER = tuple(of_ledger.TABLES)
RECORDS = (*LEDGER, "deliveries_event", "deliveries_attempt", "deliveries_acknowledgement")

REFUSED = (
    "UPDATE ledger_run SET status = 'succeeded', revision = revision + 1",
    "UPDATE ledger_lease SET owner = 'me', epoch = epoch + 1",
    "UPDATE ledger_operation SET status = 'unknown', revision = revision + 1",
    "SELECT run_id FROM ledger_lease FOR KEY SHARE",
    "INSERT INTO ledger_run DEFAULT VALUES",
    "MERGE INTO ledger_dispatch AS d USING ledger_lease AS l ON d.run_id = l.run_id WHEN MATCHED THEN DELETE",
    *(f"{verb} {table}" for table in RECORDS for verb in ("DELETE FROM", "TRUNCATE", "DROP TABLE", "LOCK TABLE")),
    *(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in LEDGER),
    "ALTER TABLE ledger_operation DROP CONSTRAINT operation_status",
    "ALTER TABLE ledger_operation OWNER TO relay_runtime",
    "CREATE TRIGGER mine AFTER UPDATE ON ledger_run EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    f"SET ROLE {roles.OWNER}",
    f"SET ROLE {roles.MIGRATOR}",
    f"GRANT {roles.OWNER} TO {roles.RUNTIME}",
    "SET session_replication_role = replica",
    "CREATE TABLE mine (x int)",
    "CREATE TEMPORARY TABLE mine (x int)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "CREATE ROLE mine",
    "DROP FUNCTION ledger_uuid7()",
    "CREATE OR REPLACE FUNCTION ledger_uuid7() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'",
    "SELECT setval('ledger_operation_operation_key_seq', 1)",
    "SELECT nextval('ledger_operation_operation_key_seq')",
    "COPY ledger_run TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
    "DELETE FROM django_migrations",
    "INSERT INTO auth_permission (name, content_type_id, codename) VALUES ('all', 1, 'all')",
)  # fmt: skip
TO_THE_READER = (
    *(f"UPDATE {table} SET updated_at = updated_at" for table in ("ledger_task", "ledger_run", "ledger_operation")),
    "SELECT run_id FROM ledger_lease FOR KEY SHARE",
    "INSERT INTO ledger_resolution (actor) VALUES ('me')",
    "DELETE FROM ledger_dispatch",
    "SELECT secret_sealed FROM deliveries_endpoint",
    "SELECT headers FROM deliveries_endpoint",
    "SELECT * FROM deliveries_endpoint",
    "SELECT secret_hash FROM deliveries_api_key",
    "SELECT password FROM auth_user",
    "SELECT * FROM django_session",
    "SELECT data FROM huey_task",
    "SELECT ledger_uuid7()",
    "CREATE TEMPORARY TABLE mine (x int)",
)


def login_of(role: str) -> psycopg.Connection[Any]:
    """A connection that is this role's from its login on."""
    if not settings.RELAY_EMBEDDED:
        pytest.skip("on a server of one's own these roles have passwords that the tests do not know")
    return psycopg.connect(make_conninfo(**{**database.login(), "user": role}), autocommit=True)


@pytest.fixture(scope="module")
def runtime(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection[Any]]:
    with django_db_blocker.unblock(), login_of(roles.RUNTIME) as connection:
        yield connection


@pytest.fixture(scope="module")
def reader(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[psycopg.Connection[Any]]:
    with django_db_blocker.unblock(), login_of(roles.READER) as connection:
        yield connection


def refused(connection: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.Error) as error, connection.transaction():
        connection.execute(statement.encode())
    assert error.value.sqlstate == "42501", f"{error.value.sqlstate}: {error.value}"


@pytest.mark.parametrize("statement", REFUSED)
def test_the_runtime_is_refused(runtime: psycopg.Connection[Any], statement: str) -> None:
    refused(runtime, statement)


@pytest.mark.parametrize("table", RECORDS)
def test_no_column_of_a_record_can_be_written(runtime: psycopg.Connection[Any], table: str) -> None:
    found = runtime.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped", [table]
    )
    for (column,) in found.fetchall():
        refused(runtime, f"UPDATE {table} SET {column} = {column}")
        refused(runtime, f"INSERT INTO {table} ({column}) VALUES (NULL)")


@pytest.mark.parametrize("statement", TO_THE_READER)
def test_the_reader_is_refused(reader: psycopg.Connection[Any], statement: str) -> None:
    refused(reader, statement)


def test_the_reader_reads_the_record(reader: psycopg.Connection[Any]) -> None:
    for table in RECORDS:
        reader.execute(f"SELECT * FROM {table} LIMIT 1".encode())
    reader.execute("SELECT endpoint_id, url, enabled FROM deliveries_endpoint LIMIT 1")


def test_the_migrator_is_nobody_until_it_becomes_the_owner(django_db_setup: None) -> None:
    with login_of(roles.MIGRATOR) as connection:
        refused(connection, "SELECT * FROM public.ledger_run")
        refused(connection, "CREATE TABLE public.mine (x int)")
        with connection.transaction(force_rollback=True):
            connection.execute(f"SET ROLE {roles.OWNER}".encode())
            connection.execute("ALTER TABLE ledger_run ADD COLUMN mine int")


def test_the_owner_cannot_log_in(django_db_setup: None) -> None:
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        login_of(roles.OWNER)
