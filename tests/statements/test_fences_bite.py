"""Each condition of a fence does its work: without it, and only without it, the stale write succeeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from ledger.managers import operation, unknown
from ledger.managers.operation import Proof, Settlement
from ledger.managers.unknown import Retry
from ledger.outcome import Applied
from ledger.statements import LEDGER, Statement
from tests.statements.fences import FENCES, Answer, Fault, Fence, Presented, Written, inflict, present
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, TTL_MS

pytestmark = pytest.mark.django_db

ME = r"%\(owner\)[sbt]"


@dataclass(frozen=True, slots=True)
class Cut:
    """Take `conditions` (patterns, each found exactly once) out of a statement: then `fault` no longer stops it.

    A settler is compared with two rows, the lease's owner and the claim's: both go.
    """

    statement: str
    fault: Fault
    conditions: tuple[str, ...]


def _judged(alias: str, statement: str) -> tuple[Cut, ...]:
    """The three conditions of a term, judged on the locked lease."""
    return (
        Cut(statement, Fault.OTHER_OWNER, (rf"{alias}\.seen_owner = {ME} AND ",)),
        Cut(statement, Fault.OLDER_EPOCH, (rf" AND {alias}\.seen_epoch = {alias}\.epoch",)),
        Cut(statement, Fault.EXPIRED, (rf"AND {alias}\.expires_at > clock_timestamp\(\)",)),
    )


PROTECTED = ("run.start", "run.save_checkpoint", "run.succeed", "run.fail")
RUN_REVISION = (r"WHEN current\.seen_revision <> current\.revision THEN 'conflict'",)
OPERATION_REVISION = (r"WHEN locked\.seen_revision <> locked\.revision THEN 'conflict'",)

CUTS: tuple[Cut, ...] = (
    *_judged("locked", "lease.renew"),
    Cut("lease.release", Fault.OTHER_OWNER, (rf"lease\.owner = {ME} AND ",)),
    Cut("lease.release", Fault.OLDER_EPOCH, (r" AND lease\.epoch = held\.epoch",)),
    *(cut for name in PROTECTED for cut in _judged("current", name)),
    *(Cut(name, Fault.STALE_REVISION, RUN_REVISION) for name in PROTECTED),
    Cut(
        "operation.settle",
        Fault.OTHER_OWNER,
        (rf"locked\.seen_owner = {ME} AND ", rf"locked\.dispatch_owner <> {ME} OR "),
    ),
    *_judged("locked", "operation.settle")[1:],
    Cut("operation.settle", Fault.STALE_REVISION, (r" OR locked\.seen_revision <> locked\.revision",)),
    *_judged("current", "operation.plan"),
    Cut("unknown.resolve", Fault.STALE_REVISION, OPERATION_REVISION),
    Cut("unknown.converge", Fault.STALE_REVISION, OPERATION_REVISION),
    *(
        Cut(name, fault, (r"OR \(locked\.owner IS NOT NULL AND locked\.expires_at > clock_timestamp\(\)\)",))
        for name in ("unknown.resolve", "unknown.converge")
        for fault in (Fault.STALE_EPOCH, Fault.OLDER_EPOCH)
    ),
    Cut(
        "operation.claim",
        Fault.STALE_EPOCH,
        (r"WHEN locked\.owner IS NOT NULL AND locked\.expires_at > clock_timestamp\(\) THEN 'lease_held'",),
    ),
    Cut("lease.acquire", Fault.STALE_EPOCH, (r"AS free\b",)),
)


def without(statement: Statement, conditions: tuple[str, ...]) -> Statement:
    """The statement as it would be without these conditions."""
    text = statement.sql
    for condition in conditions:
        replacement = "OR true AS free" if condition == r"AS free\b" else ""
        text, found = re.subn(condition, replacement, text)
        assert found == 1, f"{condition} is {found} times in {statement.name}"
    return Statement(statement.name, text)


def unpark(given: Presented) -> None:
    """Let the queue point at the operation again as it did before the refusal."""
    seen = rows.operation(given.planted)
    pointer = {"due_at": seen["due_at"], "until": seen["dispatch_until"]}
    rows.change("ledger_dispatch", {"operation_key": given.operation_key}, **pointer)


def stale(fence: Fence, fault: Fault) -> Presented:
    return inflict(fault, fence, present(fence.plant()))


@pytest.mark.parametrize("cut", CUTS, ids=[f"{cut.statement}: {cut.fault}" for cut in CUTS])
def test_without_its_condition_the_stale_write_would_succeed(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = FENCES[cut.statement]
    given = stale(fence, cut.fault)
    assert not isinstance(fence.write(given), Applied), "with its condition it is refused"
    if fence.parks:
        unpark(given)
    monkeypatch.setitem(LEDGER, cut.statement, without(LEDGER[cut.statement], cut.conditions))
    assert isinstance(fence.write(given), Applied)


def test_every_condition_of_a_term_is_cut_in_every_statement_that_only_its_holder_may_run() -> None:
    cut = {(one.statement, one.fault) for one in CUTS}
    for name, fence in FENCES.items():
        if fence.recorded:
            refused = {fault for fault, answer in fence.expected.items() if answer in ("lease_lost", "conflict")}
            wanted = refused - {Fault.STALE_EPOCH}  # Owner and epoch at once: each is cut alone.
            assert wanted <= {fault for statement, fault in cut if statement == name}, name


def _settle(given: Presented, **changed: object) -> Written:
    assert given.claim is not None
    claim = replace(given.claim, **changed)  # type: ignore[arg-type]
    return operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=OWNER)[given.operation_key]


def _schedule(given: Presented) -> Written:
    wish = Retry(given.operation_key, given.revision, 1000, rows.HOUR_MS)
    scheduled = unknown.schedule_retry([wish])
    return Applied(scheduled[0]) if scheduled else Answer.ABSENT


def _claim(given: Presented) -> Written:
    claimed, _ = operation.claim([given.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    return Applied(claimed[0]) if claimed else Answer.ABSENT


def _expire(given: Presented) -> Written:
    expired = unknown.expire_claims(batch=10, owner="reconciler")
    return Applied(expired[0]) if expired else Answer.ABSENT


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of one statement only, with a state in which it alone refuses."""

    name: str
    statement: str
    plant: Callable[[], rows.Planted]
    write: Callable[[Presented], Written]
    conditions: tuple[str, ...]


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
        "a claim that still runs", "unknown.expire_claims",
        lambda: rows.plant("dispatching", until_ms=-1000), _expire,
        (r"AND NOT judged\.alive",),
    ),
)  # fmt: skip


@pytest.mark.parametrize("condition", OTHER_CONDITIONS, ids=[one.name for one in OTHER_CONDITIONS])
def test_this_condition_alone_refuses(condition: Condition, monkeypatch: pytest.MonkeyPatch) -> None:
    given = present(condition.plant())
    assert not isinstance(condition.write(given), Applied)
    if condition.statement in ("operation.claim", "unknown.expire_claims"):
        unpark(given)
    monkeypatch.setitem(LEDGER, condition.statement, without(LEDGER[condition.statement], condition.conditions))
    assert isinstance(condition.write(given), Applied)
