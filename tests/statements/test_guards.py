"""The database's own guards: each refuses what its rule forbids, whoever asks, and nothing else."""

from __future__ import annotations

import psycopg
import pytest
from django.db import IntegrityError, connection

import deliveries.guards
import ledger.guards
from ledger.guards import FUNCTION, REFUSED, sql
from tests.statements.guard_cases import CASES, GUARDS, Case, guarded, plant

pytestmark = pytest.mark.django_db

REFUSALS = [case for case in CASES if case.rule]
ALLOWED = [case for case in CASES if not case.rule]


def named(cases: list[Case]) -> list[str]:
    return [case.name for case in cases]


@pytest.mark.parametrize("case", REFUSALS, ids=named(REFUSALS))
def test_the_database_refuses_this_by_the_name_of_the_rule_and_without_its_guard_it_would_not(case: Case) -> None:
    keys = plant(case)
    assert case.rule
    with pytest.raises(IntegrityError) as refused, guarded(), connection.cursor() as cursor:
        cursor.execute(case.sql, keys)
    cause = refused.value.__cause__
    assert isinstance(cause, psycopg.Error)
    assert (cause.sqlstate, cause.diag.constraint_name) == (REFUSED, case.rule)
    assert GUARDS[case.rule].sentence in str(cause)
    with guarded(), connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {case.rule} ON {GUARDS[case.rule].table}")
        cursor.execute(case.sql, keys)
        assert cursor.rowcount == 1


@pytest.mark.parametrize("case", ALLOWED, ids=named(ALLOWED))
def test_the_database_lets_this_through(case: Case) -> None:
    keys = plant(case)
    with guarded(), connection.cursor() as cursor:
        cursor.execute(case.sql, keys)
        assert cursor.rowcount == 1


def test_every_guard_has_a_case_that_it_refuses() -> None:
    assert {case.rule for case in REFUSALS} == set(GUARDS)


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def _installed() -> tuple[dict[str, str], str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname, pg_get_triggerdef(oid), tgenabled FROM pg_trigger"
            " WHERE tgfoid = 'ledger_refuse'::regproc AND NOT tgisinternal"
        )
        triggers = {name: f"{text} ({enabled})" for name, text, enabled in cursor.fetchall()}
        cursor.execute("SELECT pg_get_functiondef('ledger_refuse'::regproc)")
        (function,) = cursor.fetchone() or ("",)
        return triggers, function


def test_what_migrations_installed_is_what_the_tables_of_moves_say_now() -> None:
    """When this fails, add a migration with what `python -m ledger.guards` (or `deliveries.guards`) prints."""
    installed = _installed()
    with guarded(), connection.cursor() as cursor:
        for rule, text in installed[0].items():
            cursor.execute(f"DROP TRIGGER {rule} ON {text.split(' ON ')[1].split(' ')[0]}")
        cursor.execute(FUNCTION + sql(ledger.guards.GUARDS) + sql(deliveries.guards.GUARDS))
        generated = _installed()
    assert installed == generated
    assert set(installed[0]) == set(GUARDS)


def test_the_function_runs_with_the_rights_of_who_called_and_looks_only_in_the_catalog() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT prosecdef, proconfig FROM pg_proc WHERE oid = 'ledger_refuse'::regproc")
        assert cursor.fetchone() == (False, ["search_path=pg_catalog, pg_temp"])
        cursor.execute(
            "SELECT count(*) FROM pg_proc, aclexplode(proacl) AS held"
            " WHERE pg_proc.oid = 'ledger_refuse'::regproc AND held.grantee = 0"
        )
        assert cursor.fetchone() == (0,), "PUBLIC may not call it"
