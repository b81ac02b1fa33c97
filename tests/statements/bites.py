"""Conditions of one statement each, with a state in which that condition alone refuses."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ledger.managers import operation, run, task, unknown
from ledger.managers.operation import Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.unknown import Retry
from ledger.outcome import Applied
from ledger.states import Decision, RunReason
from tests.statements.fences import FENCES, LOSSES_BELOW, Answer, Presented, Written
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted, from_now

ME = r"%\(owner\)[sbt]"
Patterns = tuple[str | tuple[str, str], ...]
"""What is taken out of a statement's text, or replaced by another text."""


def _settle(given: Presented, **changed: object) -> Written:
    claim = replace(given.claim or rows.claim_of(given.planted), **changed)  # type: ignore[arg-type]
    return operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=OWNER)[given.operation_key]


def _schedule(given: Presented) -> Written:
    wish = Retry(given.operation_key, given.revision, 1000, rows.HOUR_MS)
    scheduled = unknown.schedule_retry([wish], losses_below=LOSSES_BELOW)
    return Applied(scheduled[0]) if scheduled else Answer.ABSENT


def _claim(given: Presented) -> Written:
    claimed, _ = operation.claim([given.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    return Applied(claimed[0]) if claimed else Answer.ABSENT


def _expire(given: Presented) -> Written:
    expired = unknown.expire_claims(batch=10, owner="reconciler")
    return Applied(expired[0]) if expired else Answer.ABSENT


def _planned() -> Planted:
    return rows.plant("prepared", run_status="running", owner=OWNER)


def _plan(given: Presented, **changed: Any) -> Written:
    known = {
        "run_id": given.run_id, "epoch": given.epoch, "revision": given.run_revision, "step_id": "deliver",
        "effect_version": 1, "tool": "webhook", "request_digest": given.planted.digest,
        "request_ref": given.planted.event_id, **changed,
    }  # fmt: skip
    (answer,) = operation.plan([Plan(**known)], owner=OWNER).values()
    return answer


def _pointed(status: str, *, owner: str | None = None, **columns: Any) -> Planted:
    """A pointer that says something else than its operation."""
    pointer = {name: columns.pop(name) for name in ("until", "due_at") if name in columns}
    planted = rows.plant(status, owner=owner, **columns)
    rows.change("ledger_dispatch", {"operation_key": planted.operation_key}, **pointer)
    return planted


def _left_over(status: str) -> Planted:
    """A pointer to what is settled."""
    planted = rows.plant(status, run_status="running")
    rows.insert(
        "ledger_dispatch", operation_key=planted.operation_key, run_id=planted.run_id, tenant_id=rows.TENANT,
        endpoint_id=planted.endpoint_id, due_at=from_now(-1000),
    )  # fmt: skip
    return planted


def _claimed_by(**columns: Any) -> Planted:
    """OWNER holds the lease; the claim is somebody else's, or another term's."""
    planted = rows.plant("dispatching")
    rows.change("ledger_operation", {"operation_key": planted.operation_key}, **columns)
    return planted


def _closed() -> Planted:
    planted = rows.plant("failed_final")
    rows.change("ledger_task", {"task_id": planted.task_id}, closed_at=from_now(-1000))
    return planted


def _after_loss(**columns: Any) -> Planted:
    """A claim that ran out, and what became of its lease since."""
    planted = rows.plant("dispatching", until_ms=-1000)
    rows.change("ledger_lease", {"run_id": planted.run_id}, **columns)
    return planted


def _expire_and_take(given: Presented) -> Written:
    """Applied when the lease itself was taken."""
    before = rows.lease(given.planted)
    unknown.expire_claims(batch=10, owner="reconciler")
    return Answer.ABSENT if rows.lease(given.planted) == before else Applied(None)


def _cancel_run(given: Presented) -> Written:
    run.cancel([given.run_id])
    return Applied(None) if rows.run(given.planted)["status"] == "cancelled" else Answer.ABSENT


def _cancel_operation(given: Presented) -> Written:
    run.cancel([given.run_id])
    return Applied(None) if rows.operation(given.planted)["status"] == "cancelled" else Answer.ABSENT


def _finish(given: Presented) -> Written:
    patrolled = run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler")
    return Applied(patrolled) if patrolled.finished else Answer.ABSENT


def _converge(given: Presented, proof: Proof) -> Written:
    return unknown.converge(
        operation_key=given.operation_key, revision=given.revision, proof=proof, retry_ms=1000, actor="query",
        evidence={},
    )  # fmt: skip


def _retry(given: Presented) -> Written:
    return unknown.resolve(
        operation_key=given.operation_key, actor="user:sam", decision=Decision.RETRY, reason="Asked.",
        revision=given.revision,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of one statement only, with a state in which it alone refuses."""

    name: str
    statement: str
    plant: Callable[[], Planted]
    write: Callable[[Presented], Written]
    conditions: Patterns


OTHER_CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "an outcome of another request", "operation.settle", lambda: rows.plant("dispatching"),
        lambda given: _settle(given, request_digest=b"\x07" * 32),
        (r"WHEN locked\.seen_digest <> locked\.request_digest THEN 'digest'",),
    ),
    Condition(
        "a checkpoint in between", "operation.settle", lambda: rows.plant("dispatching"),
        lambda given: _settle(given, run_revision=given.run_revision - 1),
        (r"OR \(locked\.run_status = 'running' AND locked\.seen_run_revision <> locked\.run_revision\)",),
    ),
    Condition(
        "a retry of another revision", "unknown.schedule_retry", lambda: rows.plant("unknown"),
        lambda given: _schedule(replace(given, revision=given.revision - 1)),
        (r" AND locked\.seen_revision = locked\.revision",),
    ),
    Condition(
        "a retry after the window", "operation.claim",
        lambda: rows.plant("unknown", due_ms=-1000, retry_until_ms=-1), _claim,
        (r"WHEN locked\.status = 'unknown' AND locked\.retry_until <= clock_timestamp\(\) THEN 'window_over'",),
    ),
    Condition(
        "a claim before it is due", "operation.claim", lambda: rows.plant("prepared", due_ms=60_000), _claim,
        (r"AND dispatch\.due_at <= clock_timestamp\(\)",),
    ),
    Condition(
        "an acceptance of what was never sent", "unknown.converge", lambda: rows.plant("prepared", attempts=0),
        lambda given: _converge(given, Proof.ACCEPTED), (r" AND locked\.attempts > 0",),
    ),
    Condition(
        "never arrived, about what is prepared already", "unknown.converge", lambda: rows.plant("prepared", attempts=1),
        lambda given: _converge(given, Proof.NOT_TAKEN), (r"locked\.of_prepared AND ",),
    ),
    Condition(
        "a claim that still runs", "unknown.expire_claims",
        lambda: rows.plant("dispatching", until_ms=-1000), _expire,
        (r"AND NOT judged\.alive",),
    ),
    Condition(
        "a claim that the pointer speaks of", "operation.claim", lambda: _pointed("prepared", until=from_now(TTL_MS)),
        _claim, (r"dispatch\.until IS NULL AND ",),
    ),
    Condition(
        "a claim of what is settled", "operation.claim", lambda: _left_over("succeeded"), _claim,
        (r"locked\.status NOT IN \('prepared', 'unknown'\) OR ",),
    ),
    Condition(
        "a claim of what is claimed", "operation.claim",
        lambda: _pointed("unknown", owner=OWNER, claimed_by=OWNER, lease_ms=-1000, until=None, due_at=from_now(-1000)),
        _claim, (r"OR locked\.dispatch_owner IS NOT NULL",),
    ),
    Condition(
        "a claim of what is cancelled", "operation.claim", lambda: rows.plant("prepared", run_status="cancelled"),
        _claim, (r"OR locked\.run_status NOT IN \('pending', 'running'\)",),
    ),
    Condition(
        "an outcome of what is not claimed", "operation.settle", lambda: rows.plant("unknown", owner=OWNER),
        _settle, (r" OR locked\.dispatch_owner IS NULL",),
    ),
    Condition(
        "an outcome of another's claim", "operation.settle", lambda: _claimed_by(dispatch_owner=RIVAL), _settle,
        (rf"locked\.dispatch_owner <> {ME} OR ",),
    ),
    Condition(
        "an outcome of another term's claim", "operation.settle", lambda: _claimed_by(dispatch_epoch=2), _settle,
        (r"OR locked\.dispatch_epoch <> locked\.epoch",),
    ),
    Condition(
        "a planned id with another tool", "operation.plan", _planned, lambda given: _plan(given, tool="mail"),
        (r"known\.tool <> current\.tool OR ",),
    ),
    Condition(
        "a planned id with another digest", "operation.plan", _planned,
        lambda given: _plan(given, request_digest=b"\x09" * 32),
        (r" OR known\.request_digest <> current\.request_digest",),
    ),
    Condition(
        "a version without the one before", "operation.plan", _planned, lambda given: _plan(given, effect_version=3),
        (r"WHEN current\.effect_version > 1 AND preceded\.operation_key IS NULL THEN 'gap'",),
    ),
    *(
        Condition(
            f"the next version of what is {status}", "operation.plan",
            lambda status=status: rows.plant(status, run_status="running", owner=OWNER),  # type: ignore[misc]
            lambda given: _plan(given, effect_version=2),
            (r"WHEN preceded\.status IN \('dispatching', 'unknown'\) THEN 'unsettled'",),
        )
        for status in ("dispatching", "unknown")
    ),
    *(
        Condition(
            f"{name} with an unsettled operation", name, _planned,
            lambda given, end=end: end([Held(given.run_id, given.epoch, given.run_revision)], owner=OWNER)[  # type: ignore[misc]
                given.run_id
            ],
            (r"WHEN allowed\.settled AND EXISTS \([^)]*\([^)]*\)\) THEN 'unsettled'",),
        )
        for name, end in (("run.succeed", run.succeed), ("run.fail", run.fail))
    ),
    Condition(
        "a cancel of what is over", "run.cancel", lambda: rows.plant("succeeded"), _cancel_run,
        (r" AND run\.status IN \('pending', 'running'\)",),
    ),
    Condition(
        "a cancel of what may have been taken", "run.cancel", lambda: rows.plant("unknown"), _cancel_operation,
        (r" AND operation\.status = 'prepared'",),
    ),
    Condition(
        "the end of a run whose operation is unsettled", "run.finish_left_behind",
        lambda: rows.plant("unknown"), _finish, ((r"ON last\.status IN \('succeeded', 'failed_final'\)", "ON true"),),
    ),
    Condition(
        "a replay of what is closed", "task.open_run", _closed,
        lambda given: task.open_run([given.task_id], reason=RunReason.REPLAY)[given.task_id],
        (r"WHEN over\.closed_at IS NOT NULL THEN 'closed'\s+",),
    ),
    Condition(
        "a replay of what may have happened", "task.open_run", lambda: rows.plant("unknown", run_status="cancelled"),
        lambda given: task.open_run([given.task_id], reason=RunReason.REPLAY)[given.task_id],
        (r"WHEN over\.last_status IN \('prepared', 'dispatching', 'unknown'\) THEN 'unsettled'",),
    ),
    Condition(
        "a claim under its own live term", "unknown.expire_claims", lambda: rows.plant("dispatching", until_ms=-1000),
        _expire, ((r"\(locked\.owner = locked\.dispatch_owner AND .{0,120}? IS TRUE AS alive", "false AS alive"),),
    ),
    Condition(
        "a claim that the pointer says is in time", "unknown.expire_claims",
        lambda: _pointed("dispatching", lease_ms=-1000, until_ms=-1000, until=from_now(TTL_MS)), _expire,
        (r"WHERE dispatch\.until <= \(SELECT clock_timestamp\(\)\)",),
    ),
    Condition(
        "a claim that is in time", "unknown.expire_claims",
        lambda: _pointed("dispatching", lease_ms=-1000, until=from_now(-1000)), _expire,
        (r"AND operation\.dispatch_until <= clock_timestamp\(\)",),
    ),
    Condition(
        "the term after a lost claim", "unknown.expire_claims", lambda: _after_loss(owner=OWNER, epoch=4),
        _expire_and_take, (r"AND lease\.epoch = expired\.lost_epoch",),
    ),
    Condition(
        "a lease that a lost owner gave back", "unknown.expire_claims", lambda: _after_loss(owner=None),
        _expire_and_take, (r"AND lease\.owner = expired\.lost_owner",),
    ),
    *(
        Condition(f"a retry of what is {name}", "unknown.schedule_retry", plant, _schedule, (condition,))
        for name, plant, condition in (
            ("settled", lambda: rows.plant("succeeded", run_status="running"), r" AND locked\.status = 'unknown'"),
            ("claimed", lambda: rows.plant("unknown", owner=OWNER, claimed_by=OWNER),
             r" AND locked\.dispatch_owner IS NULL"),
            ("cancelled", lambda: rows.plant("unknown", run_status="cancelled"),
             r" AND locked\.run_status IN \('pending', 'running'\)"),
            ("lost too often", lambda: rows.plant("unknown", losses=LOSSES_BELOW),
             r"locked\.losses < %\(losses_below\)s::int\s+AND "),
            ("past its window", lambda: rows.plant("unknown", first_ms=-rows.HOUR_MS),
             r"AND clock_timestamp\(\) \+ locked\.retry_ms \* interval '1 millisecond' < locked\.retry_until"),
        )
    ),
    *(
        Condition(
            f"{name} of what was claimed and not yet given up", name,
            lambda: rows.plant("unknown", owner=OWNER, claimed_by=OWNER, lease_ms=-1000), FENCES[name].write,
            (r"locked\.dispatch_owner IS NOT NULL\s+OR ",),
        )
        for name in ("unknown.resolve", "unknown.converge")
    ),
    Condition(
        "a person's retry of what is cancelled", "unknown.resolve",
        lambda: rows.plant("unknown", run_status="cancelled"), _retry,
        (r"WHEN locked\.target = 'unknown' AND locked\.run_status = 'cancelled' THEN 'run_cancelled'",),
    ),
)  # fmt: skip
