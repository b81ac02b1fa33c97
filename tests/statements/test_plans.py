"""The queue's statements find their rows by index, on a table large enough for it to matter."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from deliveries.dispatch.slices import PLANS
from deliveries.queries import DELIVERIES
from ledger.statements import LEDGER, Statement, session
from tests.support.database import unguarded

ENDPOINTS = 50
OPERATIONS = 20_000
UNKNOWN_EVERY, HELD_EVERY = 97, 101

# 20,000 deliveries to 50 endpoints: most are due, some are in flight (a few for too long), some are unknown.
PLANT = (
    """
    INSERT INTO deliveries_tenant (tenant_id, name) VALUES ('default', 'Default') ON CONFLICT DO NOTHING
    """,
    """
    CREATE TEMPORARY TABLE planned ON COMMIT DROP AS
    SELECT number, ledger_uuid7() AS task_id, ledger_uuid7() AS run_id,
           nextval('ledger_operation_operation_key_seq') AS operation_key,
           md5('endpoint' || number %% %(endpoints)s)::uuid AS endpoint_id,
           CASE WHEN number %% %(unknown)s = 0 THEN 'unknown' WHEN number %% %(held)s = 0 THEN 'dispatching'
                ELSE 'prepared' END AS status,
           CASE WHEN number %% %(held)s = 0 AND number %% %(unknown)s <> 0
                THEN clock_timestamp() + (number %% 40 - 20) * interval '1 minute' END AS until
    FROM generate_series(1, %(operations)s) AS number
    """,
    """
    INSERT INTO deliveries_endpoint
           (endpoint_id, tenant_id, url, description, types, headers, secret_sealed, enabled, disabled_reason,
            idempotent, window_hours, retry_schedule, retry_jitter, retry_max_age_hours, in_flight)
    SELECT md5('endpoint' || number)::uuid, 'default', 'http://127.0.0.1:9/', '', '{}', '{}', '', true, '', true, 72,
           '{5,300,1800}', 0.2, 72, 16
    FROM generate_series(0, %(endpoints)s - 1) AS number
    """,
    """
    INSERT INTO ledger_task (task_id, tenant_id, event_id, endpoint_id, active_run_id)
    SELECT task_id, 'default', task_id, endpoint_id, run_id FROM planned
    """,
    """
    INSERT INTO ledger_run (run_id, task_id, status, reason)
    SELECT run_id, task_id, CASE status WHEN 'prepared' THEN 'pending' ELSE 'running' END, 'submit' FROM planned
    """,
    """
    INSERT INTO ledger_lease (run_id, owner, epoch, expires_at)
    SELECT run_id, CASE status WHEN 'dispatching' THEN 'worker' END, 1, coalesce(until, clock_timestamp()) FROM planned
    """,
    """
    INSERT INTO ledger_operation
           (operation_key, run_id, step_id, tool, request_digest, request_ref, status, due_at, dispatch_owner,
            dispatch_epoch, dispatch_until, attempts, first_dispatched_at, dispatched_at, ambiguous)
    SELECT operation_key, run_id, 'deliver', 'webhook', '\\x00', task_id, status,
           CASE status WHEN 'prepared' THEN clock_timestamp() END, CASE status WHEN 'dispatching' THEN 'worker' END,
           CASE status WHEN 'dispatching' THEN 1 END, until,
           CASE status WHEN 'prepared' THEN 0 ELSE 1 END, clock_timestamp(), clock_timestamp(),
           status = 'unknown'
    FROM planned
    """,
    """
    INSERT INTO ledger_dispatch (operation_key, run_id, tenant_id, endpoint_id, due_at, until, unknown_since)
    SELECT operation_key, run_id, 'default', endpoint_id, CASE WHEN status <> 'unknown' THEN clock_timestamp() END,
           until, CASE status WHEN 'unknown' THEN clock_timestamp() END
    FROM planned
    """,
    """
    INSERT INTO deliveries_event (event_id, tenant_id, type, payload, digest, deliveries)
    SELECT task_id, 'default', 'a', '1', '\\x00', 1 FROM planned
    """,
    """
    INSERT INTO deliveries_attempt
           (operation_key, number, epoch, owner, url, started_at, verdict, classification, error)
    SELECT operation_key, 1, 1, 'worker', '', clock_timestamp(), 'unknown', 'worker_lost', '' FROM planned
    WHERE status <> 'prepared' OR number %% 10 = 0
    """,
    """
    INSERT INTO deliveries_acknowledgement (operation_key, run_id, source, said, covers, detail, actor)
    SELECT operation_key, run_id, 'query', 'unknown', 1, '', '' FROM planned WHERE number %% 10 = 0
    """,
    """
    ANALYZE ledger_task, ledger_run, ledger_lease, ledger_operation, ledger_dispatch, deliveries_endpoint,
            deliveries_attempt, deliveries_acknowledgement, deliveries_event
    """,
)

FIRST = uuid.UUID(int=0)
pytestmark = pytest.mark.django_db

PICK = {"cursor": FIRST, "steps": 64, "batch": 100, "number": 1, "dispatchers": 2}


@pytest.fixture(scope="module")
def large(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The rows of PLANT in a transaction that is rolled back after the module."""
    with django_db_blocker.unblock():
        connection.set_autocommit(False)
        try:
            with unguarded(), connection.cursor() as cursor:
                values = {
                    "endpoints": ENDPOINTS, "operations": OPERATIONS, "unknown": UNKNOWN_EVERY, "held": HELD_EVERY,
                }  # fmt: skip
                for statement in PLANT:
                    cursor.execute(statement, values)
            yield
        finally:
            connection.rollback()
            connection.set_autocommit(True)


def explained(
    statement: Statement, parameters: dict[str, Any], settings: AbstractContextManager[None]
) -> dict[str, Any]:
    """The executed plan with its row counts; what the statement wrote is rolled back."""
    raw: psycopg.Connection[Any] = connection.connection
    with settings, unguarded(), raw.transaction(force_rollback=True), psycopg.Cursor(raw) as cursor:
        text = f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {statement.sql}"
        cursor.execute(text.encode(), {**parameters, "statement": statement.name})
        (document,) = cursor.fetchone() or (None,)
    plan: Any = json.loads(document) if isinstance(document, str) else document
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The plan's nodes, all of them."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def scans_of(plan: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """How a table's rows are found."""
    return [node for node in nodes(plan) if node.get("Relation Name") == table and "Scan" in node["Node Type"]]


def settings(name: str) -> AbstractContextManager[None]:
    """The planner as a dispatcher sets it, or as it comes."""
    return session(**PLANS) if name == "dispatcher" else nullcontext()


SWEEP = {"batch": 500, "owner": "reconciler"}
UNSCHEDULED = {"after": 0, "batch": 500, "losses_below": 3}
STRETCH = {"after": 0, "batch": 500}
DUE = {"after": 0, "stretch": 100, "each": 5, "schedule": [1, 10], "longest": 86_400}
PICKED = {"dispatch_due", "dispatch_line", "ledger_dispatch_pkey"}
HELD = {"dispatch_held", "ledger_dispatch_pkey"}
CASES = (
    (DELIVERIES["dispatch.pick_due"], PICK, "ledger_dispatch", PICKED, "dispatcher"),
    (LEDGER["unknown.expire_claims"], SWEEP, "ledger_dispatch", HELD, "dispatcher"),
    (LEDGER["unknown.expire_claims"], SWEEP, "ledger_dispatch", HELD, "default"),
    (DELIVERIES["dispatch.unscheduled"], UNSCHEDULED, "ledger_dispatch", {"dispatch_needs_a_person"}, "dispatcher"),
    (DELIVERIES["dispatch.unscheduled"], UNSCHEDULED, "ledger_dispatch", {"dispatch_needs_a_person"}, "default"),
    (DELIVERIES["acknowledgement.unknown"], STRETCH, "ledger_dispatch", {"dispatch_unknown"}, "dispatcher"),
    (DELIVERIES["acknowledgement.unknown"], STRETCH, "ledger_dispatch", {"dispatch_unknown"}, "default"),
    (DELIVERIES["query.due"], DUE, "ledger_dispatch", {"dispatch_unknown"}, "dispatcher"),
    (DELIVERIES["query.due"], DUE, "ledger_dispatch", {"dispatch_unknown"}, "default"),
    (DELIVERIES["query.due"], DUE, "deliveries_acknowledgement", {"acknowledgement_by_operation"}, "dispatcher"),
)


@pytest.mark.parametrize(
    ("statement", "parameters", "table", "indexes", "planner"),
    CASES,
    ids=[f"{case[0].name}-{case[4]}" for case in CASES],
)
def test_the_queue_is_read_by_its_index(
    large: None, statement: Statement, parameters: dict[str, Any], table: str, indexes: set[str], planner: str
) -> None:
    plan = explained(statement, parameters, settings(planner))
    scans = scans_of(plan, table)
    assert scans
    assert {scan.get("Index Name", scan["Node Type"]) for scan in scans} <= indexes
    disabled = [node for node in nodes(plan) if node.get("Disabled")]
    assert not disabled, [(node["Node Type"], node.get("Relation Name")) for node in disabled]


def test_picking_looks_at_no_more_than_each_endpoints_window_and_the_batch(large: None) -> None:
    plan = explained(DELIVERIES["dispatch.pick_due"], PICK, settings("dispatcher"))
    looked_at = sum(
        scan["Actual Rows"] * scan["Actual Loops"] + scan.get("Rows Removed by Filter", 0) * scan["Actual Loops"]
        for scan in scans_of(plan, "ledger_dispatch")
    )
    assert looked_at <= ENDPOINTS * (16 + 2) + PICK["batch"] + ENDPOINTS  # type: ignore[operator]


def keys_of(condition: str, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT operation_key FROM ledger_operation WHERE {condition} ORDER BY 1 LIMIT {limit}")  # noqa: S608 - our own text
        return [key for (key,) in cursor.fetchall()]


@pytest.mark.parametrize("planner", ["dispatcher", "default"])
def test_evidence_about_unknown_operations_is_found_by_their_keys(large: None, planner: str) -> None:
    keys = keys_of("status = 'unknown'", 100)
    asked = {"operation_keys": keys, "refusals": ["rejected", "not_sent"]}
    plan = explained(DELIVERIES["acknowledgement.evidence"], asked, settings(planner))
    indexes = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
    assert {
        "ledger_operation_pkey",
        "ledger_dispatch_pkey",
        "attempt_number",
        "acknowledgement_by_operation",
    } <= indexes
    assert not [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"]


@pytest.mark.parametrize("planner", ["dispatcher", "default"])
def test_whose_word_counts_is_found_by_unique_indexes(large: None, planner: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_id FROM ledger_run LIMIT 1")
        ((run_id,),) = cursor.fetchall()
    named = {"run_id": run_id, "tenant_id": "default", "step_id": "deliver", "effect_version": 1}
    plan = explained(DELIVERIES["acknowledgement.addressee"], named, settings(planner))
    assert plan["Actual Rows"] == 1
    for table in ("ledger_operation", "ledger_run", "ledger_task"):
        assert {scan["Node Type"] for scan in scans_of(plan, table)} == {"Index Scan"}, table


def test_claiming_finds_every_row_by_its_key(large: None) -> None:
    keys = keys_of("status = 'prepared'", 100)
    claim = {"operation_keys": keys, "owner": "worker-b", "ttl_ms": 30_000}
    plan = explained(LEDGER["operation.claim"], claim, settings("dispatcher"))
    for table in ("ledger_dispatch", "ledger_lease", "ledger_run", "ledger_operation"):
        scans = scans_of(plan, table)
        assert scans, table
        assert {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}, table
        assert max(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) <= len(keys), table
