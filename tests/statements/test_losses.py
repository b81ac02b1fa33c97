"""Claims in a row that ran out: counted, forgotten when somebody comes back, and a reason to stop after so many."""

from __future__ import annotations

import pytest

from ledger.managers import operation, unknown
from ledger.managers.operation import Proof, Settlement
from ledger.managers.unknown import Retry
from ledger.outcome import Applied
from ledger.states import Decision
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, OWNER, RIVAL, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def lose(planted: Planted) -> unknown.Expired:
    """Its worker claims it and is never heard of again."""
    rows.change("ledger_dispatch", {"operation_key": planted.operation_key}, due_at=rows.from_now(-1000))
    operation.claim([planted.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    rows.expire_claim(planted)
    (expired,) = unknown.expire_claims(batch=10, owner="reconciler")
    return expired


def schedule(planted: Planted, retry_ms: int | None = 0, losses_below: int = 3) -> bool:
    wish = Retry(planted.operation_key, rows.operation(planted)["revision"], retry_ms, HOUR_MS)
    return bool(unknown.schedule_retry([wish], losses_below=losses_below))


def test_each_claim_that_runs_out_is_a_loss_until_it_is_sent_no_more_by_itself() -> None:
    planted = rows.plant("prepared")
    for count in (1, 2):
        assert lose(planted).losses == count == rows.operation(planted)["losses"]
        assert schedule(planted)
    assert lose(planted).losses == 3
    before = rows.everything()
    assert not schedule(planted)
    assert rows.everything() == before


def test_a_retry_that_was_planned_can_be_withdrawn_however_many_were_lost() -> None:
    planted = rows.plant("unknown", losses=9, due_ms=1000)
    assert schedule(planted, retry_ms=None)
    assert rows.operation(planted)["due_at"] is None


@pytest.mark.parametrize(
    ("proof", "left"),
    [(proof, 2 if proof is Proof.UNSENT else 0) for proof in Proof],
)
@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_an_attempt_that_was_made_ends_the_row_of_losses_and_giving_back_does_not(
    status: str, proof: Proof, left: int
) -> None:
    planted = rows.plant(status, owner=OWNER, claimed_by=OWNER, losses=2)
    operation.settle([Settlement(rows.claim_of(planted), proof, 0, HOUR_MS)], owner=OWNER)
    assert rows.operation(planted)["losses"] == left


@pytest.mark.parametrize(("decision", "left"), [(Decision.RETRY, 0), (Decision.SUCCEEDED, 3), (Decision.FAILED, 3)])
def test_a_persons_retry_goes_through_and_begins_the_count_anew(decision: Decision, left: int) -> None:
    planted = rows.plant("unknown", losses=3)
    answer = unknown.resolve(
        operation_key=planted.operation_key, actor="user:sam", decision=decision, reason="Looked.", revision=4
    )
    assert isinstance(answer, Applied)
    assert rows.operation(planted)["losses"] == left
    if decision is Decision.RETRY:
        assert lose(planted).losses == 1


@pytest.mark.parametrize("proof", [Proof.ACCEPTED, Proof.NOT_TAKEN, Proof.FINAL])
def test_evidence_of_the_outcome_says_nothing_about_who_was_lost(proof: Proof) -> None:
    planted = rows.plant("unknown", losses=2)
    unknown.converge(
        operation_key=planted.operation_key, revision=4, proof=proof, retry_ms=0, actor="query", evidence={}
    )
    assert rows.operation(planted)["losses"] == 2


def test_a_lost_claim_is_told_by_its_own_term_whoever_holds_the_lease_since() -> None:
    planted = rows.plant("dispatching", until_ms=-1000)
    rows.change("ledger_lease", {"run_id": planted.run_id}, owner=RIVAL, epoch=5)
    (expired,) = unknown.expire_claims(batch=10, owner="reconciler")
    assert (expired.lost_owner, expired.lost_epoch) == (OWNER, 3)
    assert (rows.lease(planted)["owner"], rows.lease(planted)["epoch"]) == (RIVAL, 5)


def test_a_claim_under_an_earlier_term_of_the_same_owner_runs_out_and_is_not_held() -> None:
    planted = rows.plant("dispatching", until_ms=-1000)
    assert [one.operation_key for one in operation.held_by(OWNER)] == [planted.operation_key]
    rows.change("ledger_lease", {"run_id": planted.run_id}, epoch=4)
    assert operation.held_by(OWNER) == []
    (expired,) = unknown.expire_claims(batch=10, owner="reconciler")
    assert expired.lost_epoch == 3
    assert (rows.lease(planted)["owner"], rows.lease(planted)["epoch"]) == (OWNER, 4), "the later term goes on"
