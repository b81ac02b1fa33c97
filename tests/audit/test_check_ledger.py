"""The audit finds nothing in a true ledger, and a planted fault of every kind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.db import connection

from deliveries import acknowledgements, reconcile
from deliveries.audit import KINDS, WALKS
from deliveries.models import Said, Tenant
from ledger import audit
from ledger.statements import in_transaction
from relay import roles
from tests.api.rows import let_lease_expire
from tests.audit.living import living
from tests.audit.plantings import PLANTINGS
from tests.statements.test_converging import claimed, now, report, say
from tests.support.database import login, unguarded
from tests.support.deliveries import Watched

BASE_DIR = Path(__file__).resolve().parent.parent.parent
PATIENCE_MS = 60_000
SQL = [BASE_DIR / app / "sql" / "audit.sql" for app in ("ledger", "deliveries")]


@pytest.fixture
def ledger(db: None) -> dict[str, Watched]:
    return living("default")


def found(batch: int = 5_000) -> Counter[str]:
    """How often each kind is broken."""
    stretches = audit.walk(WALKS, batch=batch, patience_ms=PATIENCE_MS)
    return Counter(breach.kind for stretch in stretches for breach in stretch.breaches)


def plant(kind: str, one: Watched) -> None:
    """Past guards, rights, checks and unique constraints: those may be missing in a ledger that was tampered with."""
    keys: dict[str, Any] = {"run_id": one.run_id, "operation_key": one.operation_key, "event_id": one.event_id}
    keys["task_id"] = one.run.task_id
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint "
            "WHERE contype IN ('c', 'u') AND conrelid::regclass::text ~ '^(ledger|deliveries)_'"
        )
        for table, constraint in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
        cursor.execute("DROP INDEX event_idempotency")
        for statement in PLANTINGS[kind].sql.split("; "):
            cursor.execute(statement, keys)
            assert cursor.rowcount > 0, f"nothing planted: {statement}"


def test_every_kind_that_a_statement_can_find_is_named_and_can_be_planted() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SQL]
    kinds = [kind for text in texts for kind in re.findall(r"^SELECT '([a-z_]+)'", text, re.MULTILINE)]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == set(KINDS) == set(PLANTINGS)


@pytest.mark.django_db
@pytest.mark.parametrize("batch", [1, 3, 5_000])
def test_a_ledger_in_every_state_has_no_breach(ledger: dict[str, Watched], batch: int) -> None:
    statuses = {one.status for one in ledger.values()}
    assert statuses == {"prepared", "dispatching", "unknown", "succeeded", "failed_final", "cancelled"}
    assert ledger["lost"].takeovers
    assert ledger["retried"].fenced_writes
    assert not found(batch)


@pytest.mark.django_db
@pytest.mark.parametrize("kind", sorted(PLANTINGS))
def test_a_planted_fault_is_found_and_nothing_else(ledger: dict[str, Watched], kind: str) -> None:
    plant(kind, ledger[PLANTINGS[kind].of])
    assert set(found()) == {kind} | PLANTINGS[kind].also


@pytest.mark.django_db
def test_an_acceptance_that_is_reported_when_it_has_failed_already_is_no_breach() -> None:
    delivery = claimed(query_url="http://127.0.0.1:9/asked", retry_schedule=[])
    let_lease_expire(delivery.claim)
    reconcile.sweep()
    say(delivery, Said.NEVER_ARRIVED, sends=1)
    acknowledgements.converge([delivery.key])
    assert now(delivery).status == "failed_final"
    report(delivery, 200)
    assert not found()


@pytest.fixture
def committed(transactional_db: None) -> dict[str, Watched]:
    """The same for good, for a command in a process of its own."""
    Tenant.objects.get_or_create(tenant_id="default", defaults={"name": "Default"})
    return in_transaction(lambda: living("default"))


def check_ledger(*arguments: str, role: str = roles.RUNTIME) -> subprocess.CompletedProcess[str]:
    """The command, logged in as a role that may not write the ledger, or only by its statements."""
    return subprocess.run(
        [sys.executable, "manage.py", "check_ledger", *arguments],
        cwd=BASE_DIR, env={**os.environ, "DATABASE_URL": make_url(role)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def make_url(role: str) -> str:
    """A superuser's login that becomes the role with its first statement."""
    return f"postgresql:///?{urlencode({**login(), 'options': f'-c role={role}'}, quote_via=quote)}"


@pytest.mark.parametrize("role", [roles.RUNTIME, roles.READER])
def test_the_command_says_that_all_is_well_and_then_which_rows_are_not(
    committed: dict[str, Watched], role: str
) -> None:
    clean = check_ledger("--json", "--batch", "5", role=role)
    assert clean.returncode == 0, clean.stderr
    answer = json.loads(clean.stdout)
    assert answer["clean"]
    assert answer["rows"] > len(committed)
    assert answer["breaches"] == {}

    for name in ("waiting", "retried"):
        one = committed[name]
        with unguarded(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM ledger_dispatch WHERE operation_key = %s", [one.operation_key])
    told = check_ledger(role=role)
    assert told.returncode == 1, told.stderr
    assert f"queue_row_missing: not so that {KINDS['queue_row_missing']}: 2" in told.stdout
    for name in ("waiting", "retried"):
        assert f"  {committed[name].operation_key}: it is prepared" in told.stdout
    (breach,) = json.loads(check_ledger("--json", role=role).stdout)["breaches"].values()
    assert (breach["count"], len(breach["first"])) == (2, 2)
    assert check_ledger("--since", "2999-01-01", role=role).returncode == 0, "nothing was made since"


def test_a_kind_with_many_rows_is_counted_and_its_first_twenty_are_named(committed: dict[str, Watched]) -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_fenced_write (statement, reason, run_id, owner)"
            " SELECT 'a', 'b', ledger_uuid7(), 'c' FROM generate_series(1, 31)"
        )
    told = check_ledger("--batch", "7")
    assert told.returncode == 1
    assert len([line for line in told.stdout.splitlines() if line.startswith("  ")]) == 21
    assert "  and 11 more" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--batch", "0"], {}),
        (["--since", "yesterday"], {}),
        ([], {"DATABASE_URL": "postgresql://127.0.0.1:1/relay?connect_timeout=1"}),
    ],
)
def test_what_could_not_be_checked_is_not_called_well(arguments: list[str], environment: dict[str, str]) -> None:
    told = subprocess.run(
        [sys.executable, "manage.py", "check_ledger", *arguments],
        cwd=BASE_DIR, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.returncode == 2, told.stdout
    assert "Traceback" not in told.stderr
