"""What ends an unknown operation: a person with a reason, or evidence. Never time, never a refusal, never a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.managers import operation, unknown
from ledger.managers.operation import Proof, Settled
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import Decision
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def resolve(planted: Planted, decision: Decision, revision: int | None = None) -> Applied[Settled] | Rejected:
    return unknown.resolve(
        operation_key=planted.operation_key, actor="user:sam", decision=decision, reason="  Seen in their log.  ",
        revision=rows.operation(planted)["revision"] if revision is None else revision,
    )  # fmt: skip


def converge(planted: Planted, proof: Proof, retry_ms: int | None = 0, **more: Any) -> Applied[Settled] | Rejected:
    return unknown.converge(
        operation_key=planted.operation_key, revision=rows.operation(planted)["revision"], proof=proof,
        retry_ms=retry_ms, actor="query", evidence={"answer": proof.value}, **more,
    )  # fmt: skip


def check_term(planted: Planted, before: dict[str, Any]) -> None:
    """It took a term of its own and gave it back, so whoever held one before is fenced out."""
    held = rows.lease(planted)
    assert (held["owner"], held["epoch"]) == (None, before["epoch"] + 1)


@pytest.mark.parametrize(
    ("decision", "status", "run_status"),
    [
        (Decision.SUCCEEDED, "succeeded", "succeeded"),
        (Decision.FAILED, "failed_final", "failed"),
        (Decision.RETRY, "unknown", "running"),
    ],
)
def test_a_person_settles_an_unknown_operation_with_a_reason(decision: Decision, status: str, run_status: str) -> None:
    planted = rows.plant("unknown", retry_until_ms=-1000)
    before, run_before, lease_before = rows.operation(planted), rows.run(planted), rows.lease(planted)
    answer = resolve(planted, decision)
    assert isinstance(answer, Applied)
    seen = rows.operation(planted)
    assert (seen["status"], rows.run(planted)["status"]) == (status, run_status)
    assert seen["revision"] == before["revision"] + 1 == answer.row.revision
    assert rows.run(planted)["revision"] == run_before["revision"] + (run_status != "running")
    check_term(planted, lease_before)
    (record,) = rows.rows("ledger_resolution")
    assert (record["actor"], record["decision"], record["reason"]) == ("user:sam", decision, "Seen in their log.")
    assert record["revision_seen"] == before["revision"]
    assert json.loads(seen["result"])["resolved_by"] == "user:sam"
    pointer = rows.queued(planted)
    assert (pointer is not None) is (decision is Decision.RETRY)
    if pointer is not None:
        assert pointer["unknown_since"] is not None
        (claimed,), _ = operation.claim([planted.operation_key], owner=OWNER, ttl_ms=TTL_MS)
        assert (claimed.status, claimed.attempts) == ("unknown", 2)


@pytest.mark.parametrize("reason", ["", "   ", "\n"])
def test_a_resolution_needs_a_reason(reason: str) -> None:
    planted = rows.plant("unknown")
    with pytest.raises(ValueError, match="reason"):
        unknown.resolve(
            operation_key=planted.operation_key, actor="user:sam", decision=Decision.FAILED, reason=reason, revision=4
        )


def test_the_second_of_two_people_is_told_what_the_first_decided() -> None:
    planted = rows.plant("unknown")
    seen = rows.operation(planted)["revision"]
    assert isinstance(resolve(planted, Decision.SUCCEEDED), Applied)
    before = rows.everything()
    answer = resolve(planted, Decision.FAILED, revision=seen)
    assert answer == Rejected(
        Reason.WRONG_STATUS,
        None,
        rows.lease(planted)["epoch"],
        seen + 1,
        "succeeded",
        rows.lease(planted)["expires_at"],
    )
    assert rows.everything() == before


def test_a_person_who_saw_an_older_revision_decides_nothing() -> None:
    planted = rows.plant("unknown")
    seen = rows.operation(planted)["revision"]
    assert isinstance(resolve(planted, Decision.RETRY), Applied)
    answer = resolve(planted, Decision.FAILED, revision=seen)
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_revision, answer.seen_status) == (Reason.CONFLICT, seen + 1, "unknown")
    assert len(rows.rows("ledger_resolution")) == 1


def test_an_operation_that_is_being_sent_again_is_settled_by_who_sends_it() -> None:
    planted = rows.plant("unknown", owner=OWNER, claimed_by=OWNER)
    before = rows.everything()
    for answer in (resolve(planted, Decision.FAILED), converge(planted, Proof.ACCEPTED)):
        assert isinstance(answer, Rejected)
        assert (answer.reason, answer.seen_owner) == (Reason.CLAIMED, OWNER)
    assert rows.everything() == before


def test_a_claim_that_ran_out_is_the_reconcilers_before_it_is_a_persons() -> None:
    planted = rows.plant("unknown", owner=OWNER, claimed_by=OWNER, lease_ms=-1000, until_ms=-1000)
    answer = resolve(planted, Decision.FAILED)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.CLAIMED
    unknown.expire_claims(batch=10, owner="reconciler")
    assert isinstance(resolve(planted, Decision.FAILED), Applied)


def test_what_is_cancelled_may_be_settled_but_not_sent_again() -> None:
    planted = rows.plant("unknown", run_status="cancelled")
    answer = resolve(planted, Decision.RETRY)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.RUN_CANCELLED
    assert rows.rows("ledger_resolution") == []
    assert isinstance(resolve(planted, Decision.SUCCEEDED), Applied)
    assert (rows.operation(planted)["status"], rows.run(planted)["status"]) == ("succeeded", "cancelled")


@pytest.mark.parametrize(
    ("proof", "retry_ms", "run_before", "status", "run_status"),
    [
        (Proof.ACCEPTED, 0, "running", "succeeded", "succeeded"),
        (Proof.ACCEPTED, None, "running", "succeeded", "succeeded"),
        (Proof.NOT_TAKEN, 0, "running", "prepared", "running"),
        (Proof.NOT_TAKEN, None, "running", "failed_final", "failed"),
        (Proof.FINAL, 0, "running", "failed_final", "failed"),
        (Proof.FINAL, None, "running", "failed_final", "failed"),
        (Proof.ACCEPTED, 0, "cancelled", "succeeded", "cancelled"),
        (Proof.FINAL, 0, "cancelled", "failed_final", "cancelled"),
        (Proof.ACCEPTED, 0, "failed", "succeeded", "failed"),
        (Proof.NOT_TAKEN, 0, "failed", "failed_final", "failed"),
        (Proof.NOT_TAKEN, 0, "cancelled", "failed_final", "cancelled"),
    ],
)
def test_evidence_settles_an_unknown_operation(
    proof: Proof, retry_ms: int | None, run_before: str, status: str, run_status: str
) -> None:
    planted = rows.plant("unknown", run_status=run_before, retry_until_ms=1000)
    before, lease_before = rows.operation(planted), rows.lease(planted)
    answer = converge(planted, proof, retry_ms, remote_id="r-9")
    assert isinstance(answer, Applied)
    seen = rows.operation(planted)
    assert (seen["status"], rows.run(planted)["status"]) == (status, run_status)
    assert (seen["revision"], seen["remote_id"]) == (before["revision"] + 1, "r-9")
    assert json.loads(seen["result"]) == {"converged_by": "query", "evidence": {"answer": proof.value}}
    check_term(planted, lease_before)
    pointer = rows.queued(planted)
    assert (pointer is not None) is (status == "prepared")
    if pointer is not None:
        assert (pointer["unknown_since"], seen["ambiguous"]) == (None, False)
        (claimed,), _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
        assert claimed.status == "dispatching"


@pytest.mark.parametrize("proof", [Proof.AMBIGUOUS, Proof.UNSENT])
def test_anything_less_than_an_authoritative_answer_settles_nothing(proof: Proof) -> None:
    planted = rows.plant("unknown")
    before = rows.everything()
    with pytest.raises(ValueError, match="does not settle"):
        converge(planted, proof)
    assert rows.everything() == before


def test_a_late_acknowledgement_of_an_old_run_does_not_move_the_new_run() -> None:
    from ledger.managers import task
    from ledger.states import RunReason

    planted = rows.plant("unknown")
    assert isinstance(resolve(planted, Decision.FAILED), Applied)
    opened = task.open_run([planted.task_id], reason=RunReason.REPLAY)[planted.task_id]
    assert isinstance(opened, Applied)
    before = rows.everything()
    answer = converge(planted, Proof.ACCEPTED)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.WRONG_STATUS
    assert rows.everything() == before
    assert rows.row("ledger_run", run_id=opened.row.run_id)["status"] == "pending"


def test_what_was_learned_before_is_kept_beside_the_decision() -> None:
    planted = rows.plant("unknown")
    rows.change("ledger_operation", {"operation_key": planted.operation_key}, result={"http_status": 502})
    assert isinstance(resolve(planted, Decision.SUCCEEDED), Applied)
    assert json.loads(rows.operation(planted)["result"]) == {
        "http_status": 502, "resolved_by": "user:sam", "decision": "succeeded",
    }  # fmt: skip
