"""Each condition of a fence does its work: without it, and only without it, the stale write succeeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.db import IntegrityError, transaction

from ledger.outcome import Applied
from ledger.statements import LEDGER, Statement
from tests.statements.bites import OTHER_CONDITIONS, Condition, Patterns
from tests.statements.conditions import conditions
from tests.statements.explained import EXPLAINED
from tests.statements.fences import FENCES, Fault, Fence, Presented, Written, inflict, present, statement_of
from tests.support.functions import swapped

pytestmark = pytest.mark.django_db

ME = r"%\(owner\)[sbt]"


@dataclass(frozen=True, slots=True)
class Cut:
    """Take `conditions` (patterns, each found exactly once) out of a statement: then `fault` no longer stops it.

    A pattern that comes with a text is replaced by it.

    A settler is compared with two rows, the lease's owner and the claim's: both go.
    """

    statement: str
    fault: Fault
    conditions: Patterns


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
    Cut("operation.plan", Fault.STALE_REVISION, RUN_REVISION),
    Cut("operation.plan", Fault.WRONG_STATUS, (r"WHEN current\.seen_status <> 'running' THEN 'wrong_status'",)),
    *(
        Cut(name, Fault.WRONG_STATUS, (r"WHEN current\.seen_status <> allowed\.status THEN 'wrong_status'",))
        for name in PROTECTED
    ),
    *(
        Cut(name, Fault.WRONG_STATUS, (r"WHEN locked\.seen_status <> 'unknown'.*?THEN 'wrong_status'",))
        for name in ("unknown.resolve", "unknown.converge")
    ),
    Cut(
        "task.open_run",
        Fault.WRONG_STATUS,
        (r"WHEN over\.run_status NOT IN \('succeeded', 'failed', 'cancelled'\) THEN 'wrong_status'",),
    ),
    Cut(
        "run.finish_left_behind",
        Fault.STALE_EPOCH,
        (r"WHERE lease\.owner IS NULL OR lease\.expires_at <= clock_timestamp\(\)",),
    ),
    Cut(
        "run.finish_left_behind",
        Fault.WRONG_STATUS,
        (r"WHERE stretch\.status = 'running'", r"run\.status = 'running' AND "),
    ),
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
    Cut("lease.acquire", Fault.STALE_EPOCH, ((r"AS free\b", "OR true AS free"),)),
)


def without(statement: Statement, conditions: Patterns) -> Statement:
    """The statement as it would be without these conditions."""
    text = statement.sql
    for condition in conditions:
        pattern, replacement = (condition, "") if isinstance(condition, str) else condition
        text, found = re.subn(pattern, replacement, text, flags=re.DOTALL)
        assert found == 1, f"{pattern} is {found} times in {statement.name}"
    return Statement(statement.name, text)


def gets_through(write: Callable[[Presented], Written], given: Presented) -> bool:
    """Whether the statement lets the write through; a CHECK or guard of the table may still stop it then."""
    try:
        with transaction.atomic():
            return isinstance(write(given), Applied)
    except IntegrityError:
        return True


def is_refused(write: Callable[[Presented], Written], given: Presented) -> bool:
    """Whether it is; what a refusal writes (a record, a parked pointer) is rolled back."""
    with transaction.atomic():
        answer = write(given)
        transaction.set_rollback(True)
    return not isinstance(answer, Applied)


def stale(fence: Fence, fault: Fault) -> Presented:
    return inflict(fault, fence, present(fence.plant()))


@pytest.mark.parametrize("cut", CUTS, ids=[f"{cut.statement}: {cut.fault}" for cut in CUTS])
def test_without_its_condition_the_stale_write_would_succeed(cut: Cut) -> None:
    fence = FENCES[cut.statement]
    given = stale(fence, cut.fault)
    assert is_refused(fence.write, given), "with its condition it is refused"
    with swapped(without(LEDGER[cut.statement], cut.conditions)):
        assert gets_through(fence.write, given)


def test_every_condition_of_a_term_is_cut_in_every_statement_that_only_its_holder_may_run() -> None:
    cut = {(one.statement, one.fault) for one in CUTS}
    for name, fence in FENCES.items():
        if fence.recorded:
            refused = {fault for fault, answer in fence.expected.items() if answer in ("lease_lost", "conflict")}
            wanted = refused - {Fault.STALE_EPOCH}  # Owner and epoch at once: each is cut alone.
            assert wanted <= {fault for statement, fault in cut if statement == statement_of(name)}, name


@pytest.mark.parametrize("condition", OTHER_CONDITIONS, ids=[one.name for one in OTHER_CONDITIONS])
def test_this_condition_alone_refuses(condition: Condition) -> None:
    given = present(condition.plant())
    assert is_refused(condition.write, given)
    with swapped(without(LEDGER[condition.statement], condition.conditions)):
        assert gets_through(condition.write, given)


def test_no_condition_of_a_fenced_statement_is_left_out() -> None:
    """Each one that its text has is either bitten above, or it is said why its absence lets nothing through."""
    for name in sorted({statement_of(name) for name in FENCES}):
        statement = LEDGER[name]
        bites = [cut.conditions for cut in CUTS if cut.statement == name]
        bites += [one.conditions for one in OTHER_CONDITIONS if one.statement == name]
        kept = [set(conditions(without(statement, bite).sql)) for bite in bites]
        for condition in conditions(statement.sql):
            bitten = any(condition not in one for one in kept)
            explained = any(re.match(where, name) and re.fullmatch(what, condition) for where, what, _ in EXPLAINED)
            assert bitten or explained, f"{name}: nobody bites {condition}"


def test_no_explanation_is_about_a_condition_that_is_gone() -> None:
    for where, what, _ in EXPLAINED:
        names = [statement_of(name) for name in FENCES if re.match(where, name)]
        assert any(re.fullmatch(what, one) for name in names for one in conditions(LEDGER[name].sql)), what
