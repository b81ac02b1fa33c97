"""What looking at a line costs does not grow with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from deliveries import lines
from deliveries.queries import DELIVERIES
from ledger.statements import Statement
from tests.statements.test_plans import PICK, PLANT, explained, scans_of, settings
from tests.support.database import unguarded

ENDPOINTS, OPERATIONS = 2, 40_000
NEVER = 10**9
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def long_lines(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Two endpoints, 20,000 in line of each, all due; rolled back after the module."""
    with django_db_blocker.unblock():
        connection.set_autocommit(False)
        try:
            with unguarded(), connection.cursor() as cursor:
                values = {"endpoints": ENDPOINTS, "operations": OPERATIONS, "unknown": NEVER, "held": NEVER}
                for statement in PLANT[:-1]:
                    cursor.execute(statement, values)
                cursor.execute("UPDATE ledger_task SET in_line = true")
                cursor.execute("UPDATE ledger_dispatch SET in_line = true")
                cursor.execute("UPDATE deliveries_endpoint SET ordered = true, order_patience = 5")
                cursor.execute(PLANT[-1])
            yield
        finally:
            connection.rollback()
            connection.set_autocommit(True)


def looked_at(statement: Statement, parameters: dict[str, Any], planner: str, *, by_index: bool = True) -> int:
    """How many rows of the queue were looked at; each of them by an index, where that is said."""
    plan = explained(statement, parameters, settings(planner))
    scans = scans_of(plan, "ledger_dispatch")
    assert scans
    assert not by_index or {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}
    return sum((scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans)


def test_picking_from_lines_of_20_000_looks_at_their_first_ones(long_lines: None) -> None:
    assert looked_at(DELIVERIES["dispatch.pick_due"], PICK, "dispatcher") <= ENDPOINTS * 4


@pytest.mark.parametrize("planner", ["dispatcher", "default"])
def test_the_sweep_looks_at_the_first_of_each_line(long_lines: None, planner: str) -> None:
    walk = {"after": uuid.UUID(int=0), "steps": lines.STEPS}
    assert looked_at(DELIVERIES["line.overstaying"], walk, planner) <= ENDPOINTS
    overdue = {"age_ms": 3_600_000}
    assert looked_at(DELIVERIES["dispatch.overdue"], overdue, planner) <= ENDPOINTS * 2


@pytest.mark.parametrize("planner", ["dispatcher", "default"])
def test_a_line_is_counted_as_far_as_it_is_shown(long_lines: None, planner: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT endpoint_id, min(operation_key) FROM ledger_dispatch GROUP BY endpoint_id LIMIT 1")
        ((endpoint_id, key),) = cursor.fetchall()
    # Half of the table stands in this line: any rows that come to hand are as good, and a hundred of them enough.
    shown = {"endpoint_id": endpoint_id, "most": 100}
    assert looked_at(DELIVERIES["line.show"], shown, planner, by_index=False) <= 1 + 3 * 101
    assert looked_at(DELIVERIES["line.places"], {"operation_keys": [key, key + 1]}, planner) <= 2 + 2
