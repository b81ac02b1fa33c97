"""The owner of the tables, by hand: what a receiver said is removed when its event is expunged, and not otherwise."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection

from deliveries.guards import LOSSES
from tests.statements.guard_cases import Case, guarded, plant, update

pytestmark = pytest.mark.django_db

ANSWER = {"response_headers": "NULL", "response_body": "NULL", "error": "''"}
LOST = [
    ("attempt_loses_only_expunged", update("deliveries_attempt", **ANSWER)),
    ("acknowledgement_loses_only_expunged", update("deliveries_acknowledgement", detail="''")),
]


@pytest.mark.parametrize(("rule", "sql"), LOST)
def test_of_an_event_whose_content_is_there_nothing_is_removed(rule: str, sql: str) -> None:
    keys = plant(Case("", None, "", {"ended": True}))
    with pytest.raises(IntegrityError, match="only removed when its event is expunged"), guarded():
        connection.cursor().execute(sql, keys)
    with guarded(), connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {rule} ON {sql.split()[1]}")
        cursor.execute(sql, keys)
        assert cursor.rowcount == 1


@pytest.mark.parametrize(("rule", "sql"), LOST)
def test_of_an_expunged_event_it_is(rule: str, sql: str) -> None:
    keys = plant(Case("", None, "", {"ended": True, "expunged": True}))
    with guarded(), connection.cursor() as cursor:
        cursor.execute(sql, keys)
        assert cursor.rowcount == 1


def _installed() -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger"
            " WHERE tgfoid = 'deliveries_only_of_expunged'::regproc ORDER BY tgname"
        )
        triggers = cursor.fetchall()
        cursor.execute(
            "SELECT pg_get_functiondef(oid), proacl::text FROM pg_proc WHERE proname = 'deliveries_only_of_expunged'"
        )
        return [*triggers, *cursor.fetchall()]


def test_what_the_migration_installed_is_what_is_printed_now() -> None:
    installed = _installed()
    with guarded(), connection.cursor() as cursor:
        for rule, sql in LOST:
            cursor.execute(f"DROP TRIGGER {rule} ON {sql.split()[1]}")
        cursor.execute(LOSSES.replace("%", "%%"), [])
        assert _installed() == installed
    assert len(installed) == 3
