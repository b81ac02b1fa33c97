"""The tests' own way past rights and triggers ends where its block ends."""

from __future__ import annotations

import pytest
from django.db import Error, connection, transaction

from relay import roles
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db


def who() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('session_replication_role')")
        user, replication = cursor.fetchone() or ("", "")
    return user, replication


def test_tests_run_as_the_runtime_and_are_the_superuser_only_inside_the_block() -> None:
    assert who() == (roles.RUNTIME, "origin")
    with unguarded():
        assert who()[1] == "replica"
        with unguarded():
            assert who()[1] == "replica"
        assert who()[1] == "replica"
    assert who() == (roles.RUNTIME, "origin")


def test_the_rights_are_the_runtimes_again_after_an_error_of_the_database() -> None:
    with pytest.raises(Error), unguarded(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")
    assert who() == (roles.RUNTIME, "origin")
    with pytest.raises(Error), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_run")


@pytest.mark.django_db(transaction=True)
def test_what_is_planted_outside_of_a_transaction_is_committed_and_the_rights_are_back() -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO deliveries_tenant (tenant_id, name) VALUES ('planted', 'Planted')")
    assert not connection.in_atomic_block
    assert who() == (roles.RUNTIME, "origin")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM deliveries_tenant WHERE tenant_id = 'planted'")
        assert cursor.fetchone() == (1,)
