"""Every fenced statement against every fault: the right reason, what was really seen, and nothing changed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER
from tests.statements.fences import FENCES, UNFENCED, Answer, Fault, Fence, Presented, inflict, present, statement_of
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL

pytestmark = pytest.mark.django_db

WRITES = re.compile(r"(?:UPDATE|INSERT INTO|DELETE FROM) ledger_(?:run|lease|operation)\b")


def test_every_statement_that_writes_a_run_a_lease_or_an_operation_is_in_the_matrix() -> None:
    writers = {name for name, statement in LEDGER.items() if WRITES.search(statement.sql)}
    assert writers == {statement_of(name) for name in FENCES} | set(UNFENCED)


def test_every_entry_says_what_every_fault_leads_to() -> None:
    assert {name: set(fence.expected) for name, fence in FENCES.items()} == {name: set(Fault) for name in FENCES}


MATRIX = [pytest.param(name, fault, id=f"{name}: {fault}") for name in FENCES for fault in Fault]


@pytest.mark.parametrize(("name", "fault"), MATRIX)
def test_a_write_is_applied_when_it_is_current_and_changes_nothing_when_it_is_not(name: str, fault: Fault) -> None:
    fence = FENCES[name]
    given = inflict(fault, fence, present(fence.plant()))
    before = rows.everything()
    answer = fence.write(given)
    parked = ("ledger_dispatch",) if fence.parks else ()
    match fence.expected[fault]:
        case Answer.APPLIED:
            assert isinstance(answer, Applied), answer
            assert rows.everything() != before
            assert rows.rows("ledger_fenced_write") == []
        case Answer.ABSENT:
            assert answer is Answer.ABSENT
            assert rows.everything(but=parked) == {name: found for name, found in before.items() if name not in parked}
        case reason:
            assert isinstance(answer, Rejected), answer
            assert answer.reason == reason
            allowed = ("ledger_fenced_write", *parked)
            unchanged = rows.everything(but=allowed)
            assert unchanged == {name: found for name, found in before.items() if name not in allowed}
            check_seen(fence, reason, answer, given)
            check_record(name, fence, reason, given, before)


def check_seen(fence: Fence, reason: Reason, answer: Rejected, given: Presented) -> None:
    """A refusal tells what is on record: of the lease, and of the row whose revision and status were compared."""
    if reason is Reason.MISSING:
        assert answer == Rejected(Reason.MISSING)
        return
    if fence.sees is not None:
        compared = rows.run(given.planted) if fence.sees == "run" else rows.operation(given.planted)
        assert (answer.seen_revision, answer.seen_status) == (compared["revision"], compared["status"])
    if reason in (Reason.LEASE_LOST, Reason.CLAIMED):
        held = rows.lease(given.planted)
        assert (answer.seen_owner, answer.seen_epoch) == (held["owner"], held["epoch"])
        assert answer.seen_expires_at == held["expires_at"]


def check_record(name: str, fence: Fence, reason: Reason, given: Presented, before: dict[str, Any]) -> None:
    """What was refused to a holder is on record, with what it presented and what was current."""
    if not fence.recorded or reason is Reason.MISSING:
        assert rows.rows("ledger_fenced_write") == []
        return
    (record,) = rows.rows("ledger_fenced_write")
    (held,) = before["ledger_lease"]
    assert (record["statement"], record["reason"], record["run_id"]) == (statement_of(name), reason, given.run_id)
    assert (record["owner"], record["epoch"]) == (given.owner, given.epoch)
    assert (record["seen_owner"], record["seen_epoch"]) == (held["owner"], held["epoch"])
    assert record["seen_expires_at"] == held["expires_at"]
    if name == "operation.settle":
        assert record["operation_key"] == given.operation_key
        assert record["evidence"] == '{"head": "200 OK"}', "what really arrived is never dropped"


@pytest.mark.parametrize("name", [name for name, fence in FENCES.items() if fence.expected[Fault.EXPIRED] == "applied"])
def test_an_expired_owner_that_is_displaced_leaves_a_takeover(name: str) -> None:
    fence = FENCES[name]
    given = inflict(Fault.EXPIRED, fence, present(fence.plant()))
    held = rows.lease(given.planted)
    assert isinstance(fence.write(given), Applied)
    after = rows.lease(given.planted)
    takeovers = rows.rows("ledger_takeover", run_id=given.run_id)
    if after["epoch"] == held["epoch"]:
        assert takeovers == [], "no new term, so nobody was displaced"
        return
    (takeover,) = takeovers
    assert (takeover["epoch"], after["epoch"]) == (held["epoch"] + 1, held["epoch"] + 1)
    assert (takeover["previous_owner"], takeover["previous_expired_at"]) == (OWNER, held["expires_at"])


def test_a_claim_that_was_taken_over_leaves_the_new_owner_alone_when_it_expires() -> None:
    fence = FENCES["unknown.expire_claims"]
    given = inflict(Fault.STALE_EPOCH, fence, present(fence.plant()))
    held = rows.lease(given.planted)
    assert isinstance(fence.write(given), Applied)
    assert rows.lease(given.planted) == held
    assert held["owner"] == RIVAL
    assert rows.rows("ledger_takeover") == []
