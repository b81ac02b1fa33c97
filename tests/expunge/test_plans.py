"""The statements that run on large tables find their rows by index."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection

from deliveries.queries import DELIVERIES
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

EVENTS = 20_000
TENANTS = 20
LAST = uuid.UUID(int=2**128 - 1)


@pytest.fixture
def many(db: None) -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO deliveries_tenant (tenant_id, name) VALUES ('default', 'x'), ('other', 'x')"
            " ON CONFLICT DO NOTHING"
        )
        cursor.execute(
            "INSERT INTO deliveries_event (event_id, tenant_id, type, payload, digest, deliveries)"
            " SELECT ledger_uuid7(), CASE WHEN mod(n, %s) = 0 THEN 'default' ELSE 'other' END, 'a', '1', '\\x00', 1"
            " FROM generate_series(1, %s) AS n",
            [TENANTS, EVENTS],
        )
        cursor.execute("ANALYZE deliveries_event")


def plan(name: str, values: dict[str, Any]) -> str:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + DELIVERIES[name].sql.replace("%b", "%s").replace(")b", ")s"), values)
        return "\n".join(line for (line,) in cursor.fetchall())


def test_a_step_of_a_tenants_job_reads_its_stretch_and_no_more(many: None) -> None:
    found = plan(
        "expunge.next",
        {
            "tenant_id": "default", "after": uuid.UUID(int=0), "last": LAST, "before": "2999-01-01T00:00:00Z",
            "batch": 200, "deliveries": 2_000,
        },
    )  # fmt: skip
    assert "Index Scan using event_by_tenant" in found
    assert "Seq Scan on deliveries_event" not in found


def test_recording_attempts_looks_at_events_only_where_some_are_expunged(many: None) -> None:
    columns = (
        "operation_keys", "numbers", "epochs", "owners", "urls", "started_ats", "ended_ats", "verdicts",
        "classifications", "http_statuses", "response_headers", "response_bodies", "errors", "evidences", "lates",
    )  # fmt: skip
    found = plan("attempt.record", {column: [] for column in columns})
    assert "event_expunged" in found
    assert "One-Time Filter" in found
    assert "Seq Scan on deliveries_event" not in found
