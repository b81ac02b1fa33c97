"""Every right that the catalog knows of, against what is listed in `relay.grants`, and that against the statements."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from deliveries import grants as of_deliveries
from ledger import grants as of_ledger
from ledger.grants import EVERY
from ledger.statements import PREFIX
from relay import grants, roles
from relay.functions import STATEMENTS
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

BY_STATEMENTS = {
    *of_ledger.TABLES, "deliveries_event", "deliveries_attempt", "deliveries_acknowledgement",
    "deliveries_endpoint_state", "deliveries_job",
}  # fmt: skip
OWN = ("INSERT", "UPDATE", "SELECT", "REFERENCES")
SECRET_WORDS = ("secret", "password", "hash", "headers", "token")
HARMLESS = {
    ("deliveries_attempt", "response_headers"), ("deliveries_endpoint", "secret_headers"),
    ("deliveries_event", "headers"),
}  # fmt: skip
"""What a receiver answered: evidence, which the reader is there for. The names of headers whose values are secret. What
a producer sends along with a payload, and shows whoever may read it."""


def asked(query: str, *parameters: Any) -> set[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return {row if len(row) > 1 else row[0] for row in cursor.fetchall()}


def columns(table: str) -> list[str]:
    return sorted(
        asked(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped", table
        )
    )


def held_on_columns(role: str) -> set[tuple[str, str, str]]:
    """(table, column, right) for all that a role may do to the columns of every table outside of the catalog."""
    return asked(
        "SELECT c.relname, a.attname, r.word FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
        " CROSS JOIN unnest(%s::text[]) AS r (word)"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped"
        " AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        " AND c.relnamespace::regnamespace::text NOT LIKE 'pg\\_toast%%'"
        " AND has_column_privilege(%s, c.oid, a.attnum, r.word)",
        list(OWN),
        role,
    )


def held_on_tables(role: str) -> set[tuple[str, str]]:
    """(table, right) for the rights that only whole tables have."""
    return asked(
        "SELECT c.relname, r.word FROM pg_class AS c"
        " CROSS JOIN unnest(ARRAY['DELETE', 'TRUNCATE', 'TRIGGER']) AS r (word)"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')"
        " AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        " AND c.relnamespace::regnamespace::text NOT LIKE 'pg\\_toast%%' AND has_table_privilege(%s, c.oid, r.word)",
        role,
    )


def test_what_statements_write_the_runtime_may_only_read() -> None:
    for table in BY_STATEMENTS:
        rights = grants.TABLES[table]
        assert (rights.insert, rights.update, rights.delete) == ((), (), False), table


def test_whatever_statements_write_is_written_by_statements_alone() -> None:
    texts = [statement.sql for statement in STATEMENTS if statement.writes]
    written = {table for sql in texts for table in re.findall(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)", sql)}
    assert written - {"OF"} == BY_STATEMENTS


def test_every_table_of_ours_is_listed() -> None:
    models = {
        model._meta.db_table for app in ("ledger", "deliveries") for model in apps.get_app_config(app).get_models()
    }
    assert models == {*of_ledger.TABLES, *of_deliveries.TABLES}
    assert grants.Present().tables == set(grants.TABLES)
    for table, rights in grants.TABLES.items():
        assert {*rights.insert, *rights.update, *rights.secret} - {*EVERY} <= set(columns(table)), table


def test_the_runtime_may_do_to_columns_and_tables_what_is_listed_and_nothing_else() -> None:
    expected: set[tuple[str, str, str]] = set()
    for table, rights in grants.TABLES.items():
        every = columns(table)
        for word, named in (("INSERT", rights.insert), ("UPDATE", rights.update), ("SELECT", EVERY)):
            expected |= {(table, column, word) for column in (every if named == EVERY else named)}
    assert held_on_columns(roles.RUNTIME) == expected
    assert held_on_tables(roles.RUNTIME) == {(table, "DELETE") for table, one in grants.TABLES.items() if one.delete}


def test_the_reader_sees_everything_but_secrets_and_writes_nothing() -> None:
    held = held_on_columns(roles.READER)
    assert {word for _, _, word in held} == {"SELECT"}
    assert {(table, column) for table, column, _ in held} == {
        (table, column)
        for table, rights in grants.TABLES.items()
        if not rights.unread
        for column in columns(table)
        if column not in rights.secret
    }
    assert held_on_tables(roles.READER) == set()
    assert not [
        (table, column)
        for table, column, _ in held
        if any(word in column for word in SECRET_WORDS) and (table, column) not in HARMLESS
    ]


def test_sequences_functions_schema_and_database_are_closed_but_for_what_is_listed() -> None:
    sequences = "SELECT relname FROM pg_class WHERE CASE relkind WHEN 'S' THEN has_sequence_privilege(%s, oid, %s) END"
    functions = (
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = %s::regnamespace"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE')"
    )
    assert asked(sequences, roles.RUNTIME, "USAGE") == set(grants.SEQUENCES)
    assert asked(sequences, roles.RUNTIME, "SELECT, UPDATE") == set()
    held = asked(functions, roles.SCHEMA, roles.RUNTIME)
    fenced = {one for one in held if one.startswith(PREFIX)}
    assert {one.partition("(")[0] for one in fenced} == {one.function for one in STATEMENTS if one.writes}
    assert held - fenced == set(grants.FUNCTIONS)
    assert asked(sequences, roles.READER, "USAGE, SELECT, UPDATE") == set()
    assert asked(functions, roles.SCHEMA, roles.READER) == set()
    for role in (roles.RUNTIME, roles.READER):
        assert asked("SELECT nspname FROM pg_namespace WHERE has_schema_privilege(%s, oid, 'CREATE')", role) == set()
        held = asked(
            "SELECT word FROM unnest(ARRAY['CONNECT', 'CREATE', 'TEMPORARY']) AS held (word)"
            " WHERE has_database_privilege(%s, current_database(), word)",
            role,
        )
        assert held == {"CONNECT"}


def test_nobody_else_may_do_anything_in_the_schema() -> None:
    public = "aclexplode(coalesce({}, acldefault('{}', {}))) AS acl WHERE acl.grantee = 0"
    for kind, table, acl, owner, where in (
        ("f", "pg_proc", "proacl", "proowner", "pronamespace"),
        ("r", "pg_class", "relacl", "relowner", "relnamespace"),
        ("n", "pg_namespace", "nspacl", "nspowner", "oid"),
    ):
        source = public.format(acl, kind, owner)
        assert (
            asked(f"SELECT t.oid FROM {table} AS t, {source} AND t.{where} = %s::regnamespace", roles.SCHEMA)  # noqa: S608
            == set()
        )
    database = public.format("datacl", "d", "datdba")
    query = f"SELECT d.oid FROM pg_database AS d, {database} AND d.datname = current_database()"  # noqa: S608
    assert asked(query) == set()


def test_the_roles_are_no_more_than_they_should_be() -> None:
    attributes = asked(
        "SELECT rolname, rolcanlogin, rolsuper, rolinherit, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles"
        " WHERE rolname = ANY(%s)",
        list(roles.LOGIN),
    )
    assert attributes == {(role, login, False, False, False, False, False) for role, login in roles.LOGIN.items()}
    members = asked(
        "SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members"
        " WHERE member::regrole::text = ANY(%s) OR roleid::regrole::text = ANY(%s)",
        list(roles.LOGIN),
        list(roles.LOGIN),
    )
    assert members == {(roles.OWNER, roles.MIGRATOR)}
    owned = "SELECT classid::regclass, objid FROM pg_shdepend WHERE deptype = 'o' AND refobjid = ANY(%s::regrole[])"
    assert asked(owned, [roles.RUNTIME, roles.READER, roles.MIGRATOR]) == set()
    with unguarded():
        assert asked("SELECT 1 FROM pg_db_role_setting WHERE setrole = ANY(%s::regrole[])", list(roles.LOGIN)) == set()


def test_a_function_with_its_owners_rights_looks_for_names_in_the_catalog_only() -> None:
    definers = asked(
        "SELECT oid::regprocedure::text, coalesce(array_to_string(proconfig, ';'), '') FROM pg_proc WHERE prosecdef"
        " AND pronamespace <> 'pg_catalog'::regnamespace"
    )
    assert {config for _, config in definers} <= {"search_path=pg_catalog, pg_temp"}


def test_a_function_that_the_owner_makes_later_is_for_nobody_until_it_is_granted() -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {roles.OWNER}")
        cursor.execute("CREATE FUNCTION later() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        cursor.execute("CREATE TABLE later_too (x int)")
    may = "SELECT has_function_privilege(%s, 'later()', 'EXECUTE'), has_table_privilege(%s, 'later_too', 'SELECT')"
    for role in (roles.RUNTIME, roles.READER):
        assert asked(may, role, role) == {(False, False)}
