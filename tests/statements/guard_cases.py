"""Writes that the database's own guards must refuse, and those that they must let through: computed from the tables."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from django.db import connection

import deliveries.guards
import ledger.guards
from ledger.guards import CLAIMS, ENDS_CLAIM, Guard
from ledger.states import OPERATION_MOVES, RUN_MOVES, RunStatus
from tests.support import ledger_rows as rows
from tests.support.database import unguarded

GUARDS: dict[str, Guard] = {guard.rule: guard for guard in (*ledger.guards.GUARDS, *deliveries.guards.GUARDS)}

KEYS = {
    "ledger_task": "task_id = %(task_id)s",
    "ledger_run": "run_id = %(run_id)s",
    "ledger_lease": "run_id = %(run_id)s",
    "ledger_operation": "operation_key = %(operation_key)s",
    "ledger_takeover": "run_id = %(run_id)s",
    "ledger_fenced_write": "run_id = %(run_id)s",
    "ledger_resolution": "operation_key = %(operation_key)s",
    "deliveries_event": "event_id = %(event_id)s",
    "deliveries_acknowledgement": "operation_key = %(operation_key)s",
    "deliveries_attempt": "operation_key = %(operation_key)s",
    "deliveries_job": "job_id = %(job_id)s",
}

OTHER = {
    "uuid": "gen_random_uuid()",
    "text": "{} || 'x'",
    "bytea": "sha256('other')",
    "integer": "{} + 1",
    "bigint": "{} + 1000",
    "timestamp with time zone": "{} - interval '1 second'",
    "boolean": "NOT {}",
    "jsonb": "{} || '{{\"x\": 1}}'",
    "job_kind": "'expunge'",
}
"""Another value of the same type."""


@dataclass(frozen=True, slots=True)
class Case:
    """A write in the face of a planted task, which `rule` refuses (None: nothing does)."""

    name: str
    rule: str | None
    sql: str
    planted: dict[str, Any] = field(default_factory=dict)


def update(table: str, **columns: str) -> str:
    settings = ", ".join(f"{name} = {value}" for name, value in columns.items())
    return f"UPDATE {table} SET {settings} WHERE {KEYS[table]}"  # noqa: S608 - our own names


def _moved(**columns: str) -> dict[str, str]:
    return {"revision": "revision + 1", **columns}


def _run_moves() -> Iterator[Case]:
    legal = {(move.source, move.target) for move in RUN_MOVES}
    for source, target in product(RunStatus, RunStatus):
        rule = None if (source, target) in legal else "run_legal_move"
        sql = update("ledger_run", **_moved(status=f"'{target}'"))
        yield Case(f"run {source} to {target}", rule, sql, {"run_status": str(source)})


PLACES: tuple[tuple[str, bool], ...] = (
    ("prepared", False), ("dispatching", True), ("unknown", False), ("unknown", True), ("succeeded", False),
    ("failed_final", False), ("cancelled", False),
)  # fmt: skip
"""Where an operation may stand, and whether it is claimed there: what the CHECKs allow."""

CLAIM = {
    "dispatch_owner": "'worker-z/9/zzzzzz'",
    "dispatch_epoch": "9",
    "dispatch_until": "clock_timestamp() + interval '1 minute'",
    "dispatched_at": "clock_timestamp()",
}
NO_CLAIM = {"dispatch_owner": "NULL", "dispatch_epoch": "NULL", "dispatch_until": "NULL"}


def _place(status: str, *, claimed: bool) -> dict[str, Any]:
    return {"status": status, "claimed_by": rows.OWNER if claimed else None}


def moved_operation(source: tuple[str, bool], target: tuple[str, bool], **columns: str) -> str:
    """The write that moves an operation so, and keeps every other rule."""
    (_, was_claimed), (status, claimed) = source, target
    changed = {**(CLAIM if claimed else NO_CLAIM), "status": f"'{status}'", "due_at": "clock_timestamp()"}
    if claimed and not was_claimed:
        changed["attempts"] = "attempts + 1"
    if status in ("prepared", "unknown"):
        changed["ambiguous"] = str(status == "unknown").lower()
    return update("ledger_operation", **_moved(**{**changed, **columns}))


def _may(source: tuple[str, bool], target: tuple[str, bool]) -> bool:
    for move in OPERATION_MOVES:
        if (move.source, move.target) == (source[0], target[0]):
            kind = (move.statement in ENDS_CLAIM, move.statement in CLAIMS)
            if kind == (source[1], target[1]):
                return True
    return False


def _operation_moves() -> Iterator[Case]:
    for source, target in product(PLACES, PLACES):
        rule = None if _may(source, target) else "operation_legal_move"
        name = " to ".join(f"{status}{', claimed' if claimed else ''}" for status, claimed in (source, target))
        yield Case(f"operation {name}", rule, moved_operation(source, target), _place(source[0], claimed=source[1]))


def _identities() -> Iterator[Case]:
    """Every column that an identity names, changed alone."""
    kinds = {
        "run_id": "uuid", "task_id": "uuid", "event_id": "uuid", "endpoint_id": "uuid", "request_ref": "uuid",
        "effect_version": "integer", "number": "integer", "operation_key": "bigint", "epoch": "bigint",
        "attempt_id": "bigint", "request_digest": "bytea", "created_at": "timestamp with time zone",
        "recorded_at": "timestamp with time zone", "job_id": "uuid", "kind": "job_kind", "dry_run": "boolean",
        "parameters": "jsonb", "per_second": "integer",
    }  # fmt: skip
    for guard in GUARDS.values():
        if guard.rule.endswith("_identity_kept"):
            assert guard.violation
            for column in sorted(set(re.findall(r"NEW\.(\w+)", guard.violation))):
                value = (
                    "'replay'"
                    if guard.table == "ledger_run" and column == "reason"
                    else OTHER[kinds.get(column, "text")].format(column)
                )
                columns = {column: value}
                if guard.table in ("ledger_run", "deliveries_job"):
                    columns = _moved(**columns, status="'running'")
                if guard.table == "ledger_operation":
                    columns = _moved(**columns, due_at="clock_timestamp()")
                if guard.table == "deliveries_attempt":
                    columns |= {"ended_at": "clock_timestamp()", "late": "true"}
                planted = {"status": "unknown"} if guard.table != "ledger_task" else {}
                yield Case(f"another {column} of {guard.table}", guard.rule, update(guard.table, **columns), planted)


def _records() -> Iterator[Case]:
    touched = {
        "ledger_takeover": "owner", "ledger_fenced_write": "reason", "ledger_resolution": "reason",
        "deliveries_event": "type", "deliveries_acknowledgement": "detail",
    }  # fmt: skip
    for guard in GUARDS.values():
        if guard.rule.endswith("_append_only"):
            column = touched[guard.table]
            for name, value in (("changed", f"{column} || 'x'"), ("written again as it was", column)):
                yield Case(f"{guard.table} {name}", guard.rule, update(guard.table, **{column: value}))


UNKNOWN, CLAIMED_UNKNOWN = ("unknown", False), ("unknown", True)

EMPTIED = {
    "payload": "''", "metadata": "NULL", "headers": "NULL", "source": "NULL", "expunged_at": "clock_timestamp()",
}  # fmt: skip

BORN_RUN = "INSERT INTO ledger_run (run_id, task_id, status, reason, revision) VALUES (gen_random_uuid(), %(task_id)s, "
BORN_LEASE = "INSERT INTO ledger_lease (run_id, epoch, owner) VALUES (gen_random_uuid(), "
BORN_OPERATION = (
    "INSERT INTO ledger_operation (run_id, step_id, tool, request_digest, request_ref, status, due_at, revision,"
    " attempts, ambiguous) VALUES (%(run_id)s, 'other', 'webhook', sha256('x'), %(event_id)s, "
)

SINGLE: tuple[Case, ...] = (
    *(
        Case(f"revision {by} of {table}", f"{name}_revision_by_one", update(table, revision=f"revision {by}", **also),
             {"status": "unknown"})
        for table, name, also in (
            ("ledger_run", "run", {}), ("ledger_operation", "operation", {"due_at": "clock_timestamp()"}),
            ("deliveries_job", "job", {"status": "'running'"}),
        )
        for by in ("+ 0", "+ 2", "- 1")
    ),
    *(
        Case(f"job goes on after it is {over}", "job_ends_for_good",
             update("deliveries_job", **_moved(status="'running'", ended_at="NULL")), {"job_status": over})
        for over in ("done", "cancelled", "failed")
    ),
    Case("job counts on after its end", "job_ends_for_good", update("deliveries_job", **_moved(changed="changed + 1")),
         {"job_status": "done"}),
    Case("job is begun again", "job_ends_for_good", update("deliveries_job", **_moved(status="'pending'")),
         {"job_status": "running"}),
    *(
        Case(f"job is {over}", None,
             update("deliveries_job", **_moved(status=f"'{over}'", ended_at="clock_timestamp()")),
             {"job_status": "running"})
        for over in ("done", "cancelled", "failed")
    ),
    Case("job makes a step", None, update("deliveries_job", **_moved(status="'running'", changed="changed + 1"))),
    Case("task comes back into line", "task_stays_out_of_line", update("ledger_task", in_line="true")),
    Case("task is opened again", "task_stays_closed", update("ledger_task", closed_at="NULL"), {"closed": True}),
    Case("task is closed again", "task_stays_closed", update("ledger_task", closed_at="clock_timestamp()"),
         {"closed": True}),
    Case("task that stays out of line", None, update("ledger_task", in_line="false")),
    Case("epoch falls", "lease_epoch_never_falls", update("ledger_lease", epoch="epoch - 1"), {"status": "unknown"}),
    Case("epoch is zeroed", "lease_epoch_never_falls", update("ledger_lease", epoch="0", owner="NULL"),
         {"status": "dispatching"}),
    Case("epoch jumps forward, as after a restore", None, update("ledger_lease", epoch="epoch + 1000"),
         {"status": "unknown"}),
    Case("lease changes hands in one epoch", "lease_owner_needs_epoch", update("ledger_lease", owner="'rival/1/a'"),
         {"status": "dispatching"}),
    Case("free lease taken without an epoch", "lease_owner_needs_epoch", update("ledger_lease", owner="'rival/1/a'"),
         {"status": "unknown"}),
    Case("lease taken under the next epoch", None, update("ledger_lease", owner="'rival/1/a'", epoch="epoch + 1"),
         {"status": "unknown"}),
    Case("claim that counts no attempt", "operation_attempts_count_claims",
         moved_operation(UNKNOWN, CLAIMED_UNKNOWN, attempts="attempts"), {"status": "unknown"}),
    Case("claim that counts two", "operation_attempts_count_claims",
         moved_operation(UNKNOWN, CLAIMED_UNKNOWN, attempts="attempts + 2"), {"status": "unknown"}),
    Case("attempt without a claim", "operation_attempts_count_claims",
         moved_operation(UNKNOWN, UNKNOWN, attempts="attempts + 1"), {"status": "unknown"}),
    Case("attempt taken back without a claim", "operation_attempts_count_claims",
         moved_operation(UNKNOWN, UNKNOWN, attempts="attempts - 1"), {"status": "unknown"}),
    Case("settlement that takes two back", "operation_attempts_count_claims",
         moved_operation(("dispatching", True), ("prepared", False), attempts="attempts - 2"),
         {"status": "dispatching", "attempts": 3}),
    Case("settlement that counts one more", "operation_attempts_count_claims",
         moved_operation(("dispatching", True), ("prepared", False), attempts="attempts + 1"),
         {"status": "dispatching"}),
    Case("claim given back unsent", None,
         moved_operation(("dispatching", True), ("prepared", False), attempts="attempts - 1"),
         {"status": "dispatching"}),
    Case("ambiguity forgotten by an acceptance", "operation_ambiguity_kept",
         moved_operation(UNKNOWN, ("succeeded", False), ambiguous="false"), {"status": "unknown"}),
    Case("ambiguity forgotten by a failure", "operation_ambiguity_kept",
         moved_operation(UNKNOWN, ("failed_final", False), ambiguous="false"), {"status": "unknown"}),
    Case("run born running", "run_born_pending", BORN_RUN + "'running', 'submit', 0)"),
    Case("run born late", "run_born_pending", BORN_RUN + "'pending', 'submit', 1)"),
    Case("run born as it must be", None, BORN_RUN + "'pending', 'submit', 0)"),
    Case("lease born in a later epoch", "lease_born_free", BORN_LEASE + "1, NULL)"),
    Case("lease born held", "lease_born_free", BORN_LEASE + "0, 'rival/1/a')"),
    Case("lease born as it must be", None, BORN_LEASE + "0, NULL)"),
    Case("operation born settled", "operation_born_prepared",
         BORN_OPERATION + "'succeeded', clock_timestamp(), 0, 0, false)"),
    Case("operation born with a past", "operation_born_prepared",
         BORN_OPERATION + "'prepared', clock_timestamp(), 3, 0, false)"),
    Case("operation born with an attempt", "operation_born_prepared",
         BORN_OPERATION + "'prepared', clock_timestamp(), 0, 1, false)"),
    Case("operation born as it must be", None, BORN_OPERATION + "'prepared', clock_timestamp(), 0, 0, false)"),
    Case("event is expunged", None, update("deliveries_event", **EMPTIED)),
    Case("event is expunged without a time", "event_append_only",
         update("deliveries_event", **{**EMPTIED, "expunged_at": "NULL"})),
    Case("event is expunged, and its payload is left", "event_append_only",
         update("deliveries_event", **{**EMPTIED, "payload": "payload"})),
    *(
        Case(f"event is expunged, and its {column} is left", "event_append_only",
             update("deliveries_event", **{**EMPTIED, column: value}))
        for column, value in (("metadata", "'{}'"), ("headers", "'{}'"), ("source", "'x'"))
    ),
    *(
        Case(f"event is expunged, and its {column} is changed", "event_append_only",
             update("deliveries_event", **EMPTIED, **{column: value}))
        for column, value in (
            ("type", "'b.c'"), ("digest", "'y'"), ("deliveries", "2"), ("idempotency_key", "'x'"), ("client_id", "'x'"),
            ("created_at", "created_at - interval '1 second'"), ("deliver_at", "clock_timestamp()"),
        )
    ),
    Case("event comes back", "event_append_only",
         update("deliveries_event", payload="'1'", expunged_at="NULL"), {"expunged": True}),
    Case("event is expunged again", "event_append_only", update("deliveries_event", **EMPTIED), {"expunged": True}),
    Case("words of a receiver are removed", None, update("deliveries_acknowledgement", detail="''"),
         {"expunged": True}),
    Case("words of a receiver are removed, and what it said is changed", "acknowledgement_append_only",
         update("deliveries_acknowledgement", detail="''", said="'processed'"), {"expunged": True}),
    Case("refused write loses what was answered", None,
         update("ledger_fenced_write", evidence="evidence - '{response_headers,error}'::text[]")),
    Case("refused write loses other evidence", "fenced_write_append_only",
         update("ledger_fenced_write", evidence="evidence - 'verdict'")),
    Case("answer is removed", None,
         update("deliveries_attempt", response_headers="NULL", response_body="NULL", error="''"),
         {"ended": True, "expunged": True}),
    Case("answer is removed, and the status with it", "attempt_learns_once",
         update("deliveries_attempt", response_headers="NULL", response_body="NULL", error="''", http_status="NULL"),
         {"ended": True, "expunged": True}),
    Case("answer is removed in part", "attempt_learns_once", update("deliveries_attempt", response_body="NULL"),
         {"ended": True, "expunged": True}),
    Case("task is closed", None, update("ledger_task", closed_at="clock_timestamp()")),
    Case("lost attempt learns", None, update("deliveries_attempt", ended_at="clock_timestamp()", late="true")),
    Case("lost attempt learns, and is not called late", "attempt_learns_once",
         update("deliveries_attempt", ended_at="clock_timestamp()")),
    Case("lost attempt changed without learning", "attempt_learns_once",
         update("deliveries_attempt", error="'x'", late="true")),
    Case("attempt learns twice", "attempt_learns_once",
         update("deliveries_attempt", http_status="200", late="true"), {"ended": True}),
)  # fmt: skip

CASES: tuple[Case, ...] = (*_run_moves(), *_operation_moves(), *_identities(), *_records(), *SINGLE)


def plant(case: Case) -> dict[str, Any]:
    """The task of a case, with one row of every record; its keys."""
    wanted = dict(case.planted)
    ended, expunged, closed = (wanted.pop(name, False) for name in ("ended", "expunged", "closed"))
    job_status, job_id = wanted.pop("job_status", "pending"), uuid.uuid4()
    planted = rows.plant(wanted.pop("status", "prepared"), **wanted)
    now = rows.from_now(0)
    rows.insert(
        "ledger_takeover", run_id=planted.run_id, epoch=2, owner=rows.OWNER, previous_owner=rows.RIVAL,
        previous_expired_at=now,
    )  # fmt: skip
    rows.insert(
        "ledger_fenced_write", statement="run.fail", reason="lease_lost", run_id=planted.run_id, owner="x",
        evidence={"verdict": "answered", "error": "x", "response_headers": {}},
    )  # fmt: skip
    if closed:
        rows.change("ledger_task", {"task_id": planted.task_id}, closed_at=now)
    rows.insert(
        "ledger_resolution", operation_key=planted.operation_key, actor="ann", decision="retry", reason="x",
        revision_seen=1,
    )  # fmt: skip
    rows.insert(
        "deliveries_event", event_id=planted.event_id, tenant_id="default", type="a.b",
        payload=b"" if expunged else b"{}", digest=b"x", deliveries=1, expunged_at=now if expunged else None,
    )  # fmt: skip
    rows.insert(
        "deliveries_acknowledgement", operation_key=planted.operation_key, run_id=planted.run_id, source="query",
        said="unknown", covers=0, actor="ann", detail="x",
    )  # fmt: skip
    rows.insert(
        "deliveries_attempt", operation_key=planted.operation_key, number=1, epoch=3, owner=rows.OWNER, url="http://x",
        started_at=now, ended_at=now if ended else None, verdict="unknown", classification="worker_lost",
        http_status=200 if ended else None, error="x" if ended else "",
        response_headers={"a": "b"} if ended else None, response_body=b"x" if ended else None,
    )  # fmt: skip
    rows.insert(
        "deliveries_job", job_id=job_id, tenant_id="default", kind="recover", parameters={}, status=job_status,
        per_second=1, actor="ann", ended_at=None if job_status in ("pending", "running") else now,
    )  # fmt: skip
    return {
        "job_id": job_id, "task_id": planted.task_id, "run_id": planted.run_id, "operation_key": planted.operation_key,
        "event_id": planted.event_id,
    }  # fmt: skip


class _Undone(Exception):
    """Never seen outside: it rolls back."""


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, the connection has every right there is, and only the guards are in its way. It is all rolled back."""
    with suppress(_Undone), unguarded(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('session_replication_role', 'origin', true)")
        yield
        raise _Undone
