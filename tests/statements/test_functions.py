"""Statements that write are functions of the database: made from the files, all of them, pinned, replaced with care."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connection

from ledger import functions
from ledger.statements import SCHEMA, Statement
from relay.functions import STATEMENTS, install, missing
from relay.roles import RUNTIME
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

WRITERS = {statement.function: statement for statement in STATEMENTS if statement.writes}
OURS = "pronamespace = to_regnamespace(%s) AND starts_with(proname::text, 'fenced_')"


def catalog(column: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT proname, {column} FROM pg_proc WHERE {OURS}", [SCHEMA])  # noqa: S608
        return dict(cursor.fetchall())


def made_by(statement: Statement, *others: Statement) -> list[str]:
    with unguarded():
        return functions.install([*STATEMENTS, statement, *others])


def test_every_statement_that_writes_is_installed_and_nothing_else_is() -> None:
    assert len(WRITERS) > 15
    assert set(catalog("1")) == set(WRITERS)
    assert missing() == []


def test_a_function_runs_as_its_owner_with_a_pinned_search_path_and_is_not_for_everybody() -> None:
    assert set(catalog("prosecdef").values()) == {True}
    assert {tuple(path) for path in catalog("proconfig").values()} == {("search_path=pg_catalog, pg_temp",)}
    everybody = catalog(
        "EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE grantee = 0)"
    )
    assert set(everybody.values()) == {False}


def test_a_second_installation_changes_nothing() -> None:
    before = catalog("oid")
    with unguarded():
        assert install() == []
    assert catalog("oid") == before


def test_a_function_that_somebody_changed_by_hand_is_made_anew() -> None:
    name = next(iter(WRITERS))
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = %s", [name])
        (definition,) = cursor.fetchone() or ("",)
        cursor.execute(definition.replace("RETURN QUERY", "PERFORM 1; RETURN QUERY").replace("%", "%%"))
        assert install() == [name]
    assert catalog("prosrc")[name] == functions.body_of(WRITERS[name])


def test_a_function_that_is_not_wanted_any_more_lives_on_through_one_rollout() -> None:
    old = Statement("lease.forgotten", "/* relay: lease.forgotten */ UPDATE ledger_lease SET epoch = epoch WHERE false"
                                       " RETURNING run_id")  # fmt: skip
    another = Statement("lease.another", "UPDATE ledger_lease SET epoch = epoch WHERE false RETURNING run_id")
    assert made_by(old) == [old.function]
    with unguarded():
        for _ in range(3):  # several replicas of one version, one after another
            install()
            assert old.function in catalog("1"), "workers of the version before may still call it"
        assert functions.install([*STATEMENTS, another]) == [another.function]
        assert old.function not in catalog("1"), "that was two versions ago"
        install()
        assert another.function in catalog("1"), "a version that is rolled back to takes nothing from its successor"


def test_a_function_that_this_role_may_not_call_is_as_good_as_missing() -> None:
    some = next(iter(WRITERS.values()))
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(f"SELECT oid::regprocedure::text FROM pg_proc WHERE proname = '{some.function}'")  # noqa: S608
        (signature,) = cursor.fetchone() or ("",)
        cursor.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM {RUNTIME}")
    assert missing() == [some.function]


def test_a_name_that_is_not_qualified_is_an_error_when_the_function_is_made() -> None:
    trap = Statement("lease.trap", "UPDATE auth_user SET username = username WHERE id = %(id)s RETURNING id")
    with unguarded(), pytest.raises(psycopg.errors.UndefinedTable, match="auth_user"):
        functions.install([trap])


def test_a_missing_function_is_reported() -> None:
    unheard = Statement("lease.unheard", "UPDATE ledger_lease SET epoch = epoch WHERE false RETURNING run_id")
    assert functions.missing([unheard, *STATEMENTS]) == [unheard.function]


@pytest.mark.parametrize("statement", WRITERS.values(), ids=lambda statement: statement.name)
def test_a_name_fits_and_its_parameters_are_all_there(statement: Statement) -> None:
    assert len(statement.function) <= 63
    assert "%(" not in statement.positional
    assert f"${len(statement.parameters)}" in statement.positional
    assert f"${len(statement.parameters) + 1}" not in statement.positional
