"""Settling, row by row of the protocol's table: what each proof makes of a claimed operation, and what follows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ledger.managers import operation
from ledger.managers.operation import Claimed, Proof, Settled, Settlement
from ledger.outcome import Applied, Reason, Rejected
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, MINUTE_MS, OWNER, RIVAL, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def settle(
    planted: Planted,
    proof: Proof,
    *,
    retry_ms: int | None = 5000,
    window_ms: int | None = HOUR_MS,
    claim: Claimed | None = None,
    owner: str = OWNER,
    **more: Any,
) -> Applied[Settled] | Rejected:
    one = Settlement(claim or rows.claim_of(planted), proof, retry_ms, window_ms, **more)
    return operation.settle([one], owner=owner)[planted.operation_key]


def ambiguous_claim(**columns: Any) -> Planted:
    """An unknown operation that is being sent again under the same id."""
    return rows.plant("unknown", owner=OWNER, claimed_by=OWNER, attempts=2, **columns)


def cancelled_in_flight(status: str = "dispatching", **columns: Any) -> Planted:
    return rows.plant(status, run_status="cancelled", owner=OWNER, claimed_by=OWNER, **columns)


CLAIMS = {"first": lambda: rows.plant("dispatching"), "ambiguous": ambiguous_claim}

# (what is on record, proof, tries left) -> operation, run. None: the run goes on.
TABLE: list[tuple[str, Proof, bool, str, str]] = [
    ("first", Proof.ACCEPTED, True, "succeeded", "succeeded"),
    ("first", Proof.ACCEPTED, False, "succeeded", "succeeded"),
    ("first", Proof.NOT_TAKEN, True, "prepared", "running"),
    ("first", Proof.NOT_TAKEN, False, "failed_final", "failed"),
    ("first", Proof.FINAL, True, "failed_final", "failed"),
    ("first", Proof.FINAL, False, "failed_final", "failed"),
    ("first", Proof.AMBIGUOUS, True, "unknown", "running"),
    ("first", Proof.AMBIGUOUS, False, "unknown", "running"),
    ("first", Proof.UNSENT, True, "prepared", "running"),
    ("first", Proof.UNSENT, False, "prepared", "running"),
    ("ambiguous", Proof.ACCEPTED, True, "succeeded", "succeeded"),
    ("ambiguous", Proof.ACCEPTED, False, "succeeded", "succeeded"),
    ("ambiguous", Proof.NOT_TAKEN, True, "unknown", "running"),
    ("ambiguous", Proof.NOT_TAKEN, False, "unknown", "running"),
    ("ambiguous", Proof.FINAL, True, "unknown", "running"),
    ("ambiguous", Proof.FINAL, False, "unknown", "running"),
    ("ambiguous", Proof.AMBIGUOUS, True, "unknown", "running"),
    ("ambiguous", Proof.UNSENT, True, "unknown", "running"),
    ("ambiguous", Proof.UNSENT, False, "unknown", "running"),
]


def test_the_table_has_every_proof_for_every_claim() -> None:
    assert {(on_record, proof) for on_record, proof, *_ in TABLE} == {(one, proof) for one in CLAIMS for proof in Proof}


@pytest.mark.parametrize(("on_record", "proof", "tries", "status", "run_status"), TABLE)
def test_a_proof_moves_a_claimed_operation(
    on_record: str, proof: Proof, tries: bool, status: str, run_status: str
) -> None:
    planted = CLAIMS[on_record]()
    before, run_before, lease_before = rows.operation(planted), rows.run(planted), rows.lease(planted)
    answer = settle(planted, proof, retry_ms=5000 if tries else None, result={"http_status": 1}, remote_id="r-1")
    assert isinstance(answer, Applied)
    after, run_after, lease_after = rows.operation(planted), rows.run(planted), rows.lease(planted)

    assert (after["status"], run_after["status"]) == (status, run_status)
    assert after["revision"] == before["revision"] + 1 == answer.row.revision
    assert run_after["revision"] == run_before["revision"] + (run_status != "running")
    assert (after["dispatch_owner"], after["dispatch_until"]) == (None, None)
    assert after["remote_id"] == "r-1"
    assert after["attempts"] == before["attempts"] - (proof is Proof.UNSENT)
    assert after["ambiguous"] is (before["ambiguous"] or status == "unknown")
    # The lease is given back, and its epoch stays.
    assert (lease_after["owner"], lease_after["epoch"]) == (None, lease_before["epoch"])
    pointer = rows.queued(planted)
    assert (pointer is None) is (status in ("succeeded", "failed_final"))
    if pointer is not None:
        assert pointer["until"] is None
        assert (pointer["unknown_since"] is not None) is (status == "unknown")
        assert pointer["due_at"] == after["due_at"] == answer.row.due_at
    assert rows.rows("ledger_fenced_write") == rows.rows("ledger_takeover") == []


def test_a_try_that_is_left_is_due_after_its_delay() -> None:
    planted = rows.plant("dispatching")
    assert isinstance(settle(planted, Proof.NOT_TAKEN, retry_ms=5000), Applied)
    seen = rows.operation(planted)
    assert timedelta(0) <= seen["updated_at"] + timedelta(seconds=5) - seen["due_at"] < timedelta(seconds=1)
    assert seen["retry_until"] is None


@pytest.mark.parametrize(
    ("window_ms", "retry_ms", "due"),
    [
        (HOUR_MS, 5000, True),
        (None, 5000, False),
        (HOUR_MS, None, False),
        (MINUTE_MS + 1000, 5000, False),
        (0, 0, False),
    ],
)
def test_an_unknown_outcome_is_sent_again_only_inside_the_window_that_the_receiver_promised(
    window_ms: int | None, retry_ms: int | None, due: bool
) -> None:
    planted = rows.plant("dispatching", first_ms=-MINUTE_MS)
    assert isinstance(settle(planted, Proof.AMBIGUOUS, retry_ms=retry_ms, window_ms=window_ms), Applied)
    seen, pointer = rows.operation(planted), rows.queued(planted)
    assert pointer is not None
    assert (seen["due_at"] is not None, pointer["due_at"] is not None) == (due, due)
    if window_ms is None:
        assert seen["retry_until"] is None
    else:
        assert seen["retry_until"] == seen["first_dispatched_at"] + timedelta(milliseconds=window_ms)


def test_an_operation_that_was_given_back_unsent_is_due_at_once_and_keeps_the_end_of_its_window() -> None:
    planted = ambiguous_claim(retry_until_ms=HOUR_MS)
    until = rows.operation(planted)["retry_until"]
    assert isinstance(settle(planted, Proof.UNSENT, retry_ms=None, window_ms=None), Applied)
    seen = rows.operation(planted)
    assert seen["retry_until"] == until
    claimed, _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
    assert [one.attempts for one in claimed] == [2]


def test_an_operation_that_was_never_sent_is_not_failed_because_no_try_is_left() -> None:
    planted = rows.plant("dispatching")
    assert isinstance(settle(planted, Proof.UNSENT, retry_ms=None), Applied)
    assert rows.operation(planted)["status"] == "prepared"
    claimed, _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
    assert [one.operation_key for one in claimed] == [planted.operation_key]


def test_once_ambiguous_a_later_refusal_does_not_prove_that_the_first_send_was_not_taken() -> None:
    planted = rows.plant("dispatching")
    assert isinstance(settle(planted, Proof.AMBIGUOUS, retry_ms=0), Applied)
    (claim,), _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
    assert (claim.status, claim.ambiguous, claim.attempts) == ("unknown", True, 2)
    answer = settle(planted, Proof.NOT_TAKEN, claim=claim, owner=RIVAL, retry_ms=0)
    assert isinstance(answer, Applied)
    assert answer.row.status == "unknown"
    (claim,), _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
    answer = settle(planted, Proof.ACCEPTED, claim=claim, owner=RIVAL)
    assert isinstance(answer, Applied)
    assert answer.row.status == "succeeded"


def test_once_ambiguous_a_receiver_that_is_gone_leaves_it_unknown_for_a_person() -> None:
    planted = rows.plant("dispatching")
    assert isinstance(settle(planted, Proof.AMBIGUOUS, retry_ms=0), Applied)
    (claim,), _ = operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)
    answer = settle(planted, Proof.FINAL, claim=claim, owner=RIVAL, retry_ms=0)
    assert isinstance(answer, Applied)
    assert (answer.row.status, answer.row.due_at) == ("unknown", None)
    pointer = rows.queued(planted)
    assert pointer is not None
    assert (pointer["due_at"], pointer["until"]) == (None, None)


def test_unknown_since_is_when_it_became_unknown_and_not_when_it_was_last_sent() -> None:
    planted = ambiguous_claim()
    pointer = rows.queued(planted)
    assert isinstance(settle(planted, Proof.AMBIGUOUS), Applied)
    after = rows.queued(planted)
    assert pointer is not None
    assert after is not None
    assert after["unknown_since"] == pointer["unknown_since"]


@pytest.mark.parametrize(
    ("proof", "status"),
    [
        (Proof.ACCEPTED, "succeeded"),
        (Proof.NOT_TAKEN, "failed_final"),
        (Proof.FINAL, "failed_final"),
        (Proof.UNSENT, "failed_final"),
        (Proof.AMBIGUOUS, "unknown"),
    ],
)
def test_what_was_in_flight_when_its_run_was_cancelled_keeps_its_own_truth_and_is_not_sent_again(
    proof: Proof, status: str
) -> None:
    planted = cancelled_in_flight()
    assert isinstance(settle(planted, proof, retry_ms=0), Applied)
    assert (rows.operation(planted)["status"], rows.run(planted)["status"]) == (status, "cancelled")
    assert rows.operation(planted)["due_at"] is None
    assert operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS) == ([], {})


def test_an_unknown_operation_of_a_cancelled_run_is_not_sent_again_when_it_is_given_back() -> None:
    planted = cancelled_in_flight("unknown", attempts=2)
    assert isinstance(settle(planted, Proof.UNSENT, retry_ms=0), Applied)
    seen = rows.operation(planted)
    assert (seen["status"], seen["due_at"]) == ("unknown", None)


def test_an_outcome_of_another_request_settles_nothing_and_is_kept() -> None:
    planted = rows.plant("dispatching")
    before = rows.everything(but=("ledger_fenced_write",))
    other = replace(rows.claim_of(planted), request_digest=b"\x07" * 32)
    answer = settle(planted, Proof.ACCEPTED, claim=other, evidence={"head": "200"})
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.DIGEST
    assert rows.everything(but=("ledger_fenced_write",)) == before
    (record,) = rows.rows("ledger_fenced_write")
    assert (record["reason"], record["evidence"]) == ("digest", '{"head": "200"}')


def test_each_row_of_a_batch_is_judged_for_itself() -> None:
    planted = [rows.plant("dispatching") for _ in range(4)]
    claims = [rows.claim_of(one) for one in planted]
    rows.change("ledger_lease", {"run_id": planted[1].run_id}, owner=RIVAL, epoch=4)
    rows.expire_lease(planted[2])
    answers = operation.settle([Settlement(claim, Proof.ACCEPTED, None, None) for claim in claims], owner=OWNER)
    assert [isinstance(answers[one.operation_key], Applied) for one in planted] == [True, False, False, True]
    assert [rows.operation(one)["status"] for one in planted] == [
        "succeeded",
        "dispatching",
        "dispatching",
        "succeeded",
    ]
    assert len(rows.rows("ledger_fenced_write")) == 2
    assert rows.lease(planted[1])["owner"] == RIVAL, "a refused row frees nobody's lease"


def test_a_run_is_not_over_while_another_operation_of_it_is_unsettled() -> None:
    planted = rows.plant("dispatching")
    term = rows.term_of(planted)
    plan = operation.Plan(planted.run_id, term.epoch, 2, "notify", 1, "webhook", b"\x01" * 32, planted.event_id)
    (planned,) = operation.plan([plan], owner=OWNER).values()
    assert isinstance(planned, Applied)
    assert isinstance(settle(planted, Proof.ACCEPTED), Applied)
    assert rows.run(planted)["status"] == "running"
    (second,), _ = operation.claim([planned.row.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    answers = operation.settle([Settlement(second, Proof.ACCEPTED, None, None)], owner=OWNER)
    assert isinstance(answers[planned.row.operation_key], Applied)
    assert rows.run(planted)["status"] == "succeeded"
