"""A step that was overtaken, and a job that is over: each condition of the statements that move jobs does its work."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from deliveries import ids
from deliveries.queries import DELIVERIES
from ledger.statements import Statement
from tests.statements.conditions import conditions
from tests.support import ledger_rows as rows
from tests.support.functions import swapped

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class _Job:
    job_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Bite:
    """A write that is refused, and the condition that refuses it alone."""

    name: str
    statement: str
    plant: dict[str, Any]
    condition: tuple[str, str]


REVISION = (r"job\.revision = %\(revision\)s::bigint", "true")
GOES_ON = (r"job\.status IN \('pending', 'running'\)", "true")
TENANT = (r"job\.tenant_id = %\(tenant_id\)s::text", "true")
THIS = (r"job\.job_id = %\(job_id\)s::uuid", "true")
BITES = (
    Bite("a step that began from an older revision", "job.advance", {"revision": 2}, REVISION),
    Bite("a step of what was cancelled", "job.advance", {"status": "cancelled"}, GOES_ON),
    Bite("a step of another job", "job.advance", {"job_id": uuid.uuid4()}, THIS),
    Bite("the failure of an older step", "job.fail", {"revision": 2}, REVISION),
    Bite("the failure of what was cancelled", "job.fail", {"status": "cancelled"}, GOES_ON),
    Bite("the failure of another job", "job.fail", {"job_id": uuid.uuid4()}, THIS),
    Bite("a cancel of what is done", "job.cancel", {"status": "done"}, GOES_ON),
    Bite("a cancel by another tenant", "job.cancel", {"tenant_id": "other"}, TENANT),
    Bite("a cancel of another job", "job.cancel", {"job_id": uuid.uuid4()}, THIS),
)


def plant(**columns: Any) -> uuid.UUID:
    status = columns.get("status", "running")
    row = {
        "job_id": ids.time_ordered(), "tenant_id": "default", "kind": "recover", "parameters": {}, "revision": 1,
        "actor": "ann", "ended_at": None if status in ("pending", "running") else rows.from_now(0),
        **columns, "status": status,
    }  # fmt: skip
    rows.insert("deliveries_job", **row)
    return row["job_id"]  # type: ignore[no-any-return]


def write(name: str, job_id: uuid.UUID) -> list[_Job]:
    """What somebody writes who knows the job at revision 1, as the default tenant's."""
    presented = {
        "job.advance": {
            "job_id": job_id, "revision": 1, "position": None, "walked": 1, "matched": 1, "changed": 1, "skipped": 0,
            "pause_ms": 0.0, "done": False,
        },
        "job.fail": {"job_id": job_id, "revision": 1, "error": "x"},
        "job.cancel": {"job_id": job_id, "tenant_id": "default"},
    }  # fmt: skip
    return DELIVERIES[name].rows(_Job, presented[name])


@pytest.mark.parametrize("name", sorted({bite.statement for bite in BITES}))
def test_what_is_current_is_written(name: str) -> None:
    job_id = plant()
    assert [row.job_id for row in write(name, job_id)] == [job_id]


@pytest.mark.parametrize("bite", BITES, ids=[bite.name for bite in BITES])
def test_without_its_condition_it_would_be_written(bite: Bite) -> None:
    job_id = plant(**bite.plant)
    if "job_id" in bite.plant:
        job_id = uuid.uuid4()
    assert write(bite.statement, job_id) == []
    statement = DELIVERIES[bite.statement]
    pattern, instead = bite.condition
    text, found = re.subn(pattern, instead, statement.sql)
    assert found == 1
    with swapped(Statement(statement.name, text)):
        assert gets_through(lambda: write(bite.statement, job_id))


def gets_through(act: Callable[[], list[_Job]]) -> bool:
    """Whether the statement lets it through; a guard of the table may still stop it then."""
    try:
        with transaction.atomic():
            return bool(act())
    except IntegrityError:
        return True


def test_no_condition_is_left_out() -> None:
    for name in {bite.statement for bite in BITES}:
        bitten = [bite.condition[0] for bite in BITES if bite.statement == name]
        for condition in conditions(DELIVERIES[name].sql):
            assert any(re.fullmatch(one, condition) for one in bitten), f"{name}: nobody bites {condition}"
