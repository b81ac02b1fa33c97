"""Two connections and one operation: claims, outcomes, people and the reconciler that meet."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import transaction

from ledger.managers import operation, run, unknown
from ledger.managers.operation import Claimed, Proof, Settled, Settlement
from ledger.managers.unknown import Expired, Retry
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import Decision
from tests.races.rival import DEADLINE_S, Observer, Rival
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted

Outcome = Applied[Settled] | Rejected


def settle(claim: Claimed, owner: str = OWNER) -> Outcome:
    return operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=owner)[claim.operation_key]


def resolve(planted: Planted, decision: Decision, revision: int = 4) -> Outcome:
    return unknown.resolve(
        operation_key=planted.operation_key, actor="user:sam", decision=decision, reason="Asked.", revision=revision
    )


def claim(*planted: Planted, owner: str = RIVAL) -> list[Claimed]:
    return operation.claim([one.operation_key for one in planted], owner=owner, ttl_ms=TTL_MS)[0]


def expire() -> list[Expired]:
    return unknown.expire_claims(batch=10, owner="reconciler")


def test_of_two_claims_on_the_same_keys_each_key_goes_to_one(observer: Observer) -> None:
    planted = [rows.plant("prepared") for _ in range(4)]
    with transaction.atomic():
        first = claim(*planted[:3], owner=OWNER)
        rival = Rival(lambda: claim(*reversed(planted)))
        second = rival.result()  # It does not wait: it skips what is locked.
    assert {one.operation_key for one in first} == {one.operation_key for one in planted[:3]}
    assert [one.operation_key for one in second] == [planted[3].operation_key]
    assert {one["dispatch_owner"] for one in rows.rows("ledger_operation")} == {OWNER, RIVAL}


def test_claims_at_full_tilt_never_share_a_key(observer: Observer) -> None:
    planted = [rows.plant("prepared") for _ in range(60)]
    start = threading.Barrier(4, timeout=DEADLINE_S)

    def work(owner: str) -> list[Claimed]:
        start.wait()
        return [one for offset in range(0, 60, 6) for one in claim(*planted[offset : offset + 9], owner=owner)]

    rivals = [Rival(lambda owner=f"worker/{number}": work(owner)) for number in range(4)]  # type: ignore[misc]
    taken = [one.operation_key for rival in rivals for one in rival.result()]
    assert len(taken) == len(set(taken))
    left = [one["operation_key"] for one in rows.rows("ledger_operation", status="prepared")]
    assert sorted([*taken, *left]) == [one.operation_key for one in planted]
    assert {one["attempts"] for one in rows.rows("ledger_operation", status="dispatching")} == {1}
    assert rows.rows("ledger_takeover") == []


@pytest.mark.parametrize("first", ["settle", "expire"])
def test_a_settle_and_the_expiry_of_its_claim_have_one_order(observer: Observer, first: str) -> None:
    planted = rows.plant("dispatching", lease_ms=-1000, until_ms=-1000)
    stale = rows.claim_of(planted)
    with transaction.atomic():
        if first == "settle":
            late = settle(stale)
            rival = Rival(expire)
            assert rival.result() == [], "the reconciler does not wait: the next sweep is near"
        else:
            assert len(expire()) == 1
            waiting = Rival(lambda: settle(stale))
            observer.see_waiting(waiting, "operation.settle")
    if first == "expire":
        late = waiting.result()
    assert isinstance(late, Rejected)
    assert late.reason is Reason.LEASE_LOST
    assert len(expire()) == (first == "settle")
    assert rows.operation(planted)["status"] == "unknown"


def test_an_outcome_that_is_settled_just_in_time_is_not_expired(observer: Observer) -> None:
    planted = rows.plant("dispatching", until_ms=-1000)  # Its owner renewed the lease.
    current = rows.claim_of(planted)
    with transaction.atomic():
        assert isinstance(settle(current), Applied)
        rival = Rival(expire)
        assert rival.result() == []
    assert expire() == []
    assert rows.operation(planted)["status"] == "succeeded"


def test_of_two_resolutions_the_first_decides_and_the_second_is_told(observer: Observer) -> None:
    planted = rows.plant("unknown")
    with transaction.atomic():
        assert isinstance(resolve(planted, Decision.SUCCEEDED), Applied)
        rival = Rival(lambda: resolve(planted, Decision.FAILED))
        observer.see_waiting(rival, "unknown.resolve")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_status, answer.seen_revision) == (Reason.WRONG_STATUS, "succeeded", 5)
    assert [one["decision"] for one in rows.rows("ledger_resolution")] == ["succeeded"]


def test_of_two_resolutions_that_send_it_again_the_second_sees_a_newer_revision(observer: Observer) -> None:
    planted = rows.plant("unknown")
    with transaction.atomic():
        assert isinstance(resolve(planted, Decision.RETRY), Applied)
        rival = Rival(lambda: resolve(planted, Decision.RETRY))
        observer.see_waiting(rival, "unknown.resolve")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_revision) == (Reason.CONFLICT, 5)


def test_a_resolution_that_waited_for_a_claim_leaves_the_operation_to_who_sends_it(observer: Observer) -> None:
    planted = rows.plant("unknown", due_ms=-1000)
    with transaction.atomic():
        (claimed,) = claim(planted)
        rival = Rival(lambda: resolve(planted, Decision.FAILED))
        observer.see_waiting(rival, "unknown.resolve")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_owner) == (Reason.CLAIMED, RIVAL)
    assert isinstance(settle(claimed, RIVAL), Applied)


def test_a_claim_skips_what_a_person_is_settling(observer: Observer) -> None:
    planted = rows.plant("unknown", due_ms=-1000)
    with transaction.atomic():
        assert isinstance(resolve(planted, Decision.SUCCEEDED), Applied)
        rival = Rival(lambda: claim(planted))
        assert rival.result() == []
    assert claim(planted) == []
    assert (rows.operation(planted)["status"], rows.operation(planted)["attempts"]) == ("succeeded", 1)


def test_a_cancel_that_waited_for_a_claim_does_not_call_it_unexecuted(observer: Observer) -> None:
    planted = rows.plant("prepared")
    with transaction.atomic():
        (claimed,) = claim(planted)
        rival = Rival(lambda: run.cancel([planted.run_id])[planted.run_id])
        observer.see_waiting(rival, "lease.await_holders")
    assert isinstance(rival.result(), Applied)
    assert (rows.run(planted)["status"], rows.operation(planted)["status"]) == ("cancelled", "dispatching")
    assert isinstance(settle(claimed, RIVAL), Applied)
    assert (rows.run(planted)["status"], rows.operation(planted)["status"]) == ("cancelled", "succeeded")


def test_a_claim_skips_what_is_being_cancelled(observer: Observer) -> None:
    planted = rows.plant("prepared")
    with transaction.atomic():
        assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
        rival = Rival(lambda: claim(planted))
        assert rival.result() == []
    assert claim(planted) == []
    assert rows.operation(planted)["attempts"] == 0


def test_a_cancel_that_waited_for_a_settle_comes_too_late(observer: Observer) -> None:
    planted = rows.plant("dispatching")
    with transaction.atomic():
        assert isinstance(settle(rows.claim_of(planted)), Applied)
        rival = Rival(lambda: run.cancel([planted.run_id])[planted.run_id])
        observer.see_waiting(rival, "lease.await_holders")
    answer = rival.result()
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_status) == (Reason.WRONG_STATUS, "succeeded")


def test_a_settle_that_waited_for_a_cancel_records_the_truth_and_leaves_the_run_cancelled(observer: Observer) -> None:
    planted = rows.plant("dispatching")
    current = rows.claim_of(planted)
    with transaction.atomic():
        assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
        rival = Rival(lambda: settle(current))
        observer.see_waiting(rival, "operation.settle")
    assert isinstance(rival.result(), Applied)
    assert (rows.run(planted)["status"], rows.operation(planted)["status"]) == ("cancelled", "succeeded")


def test_a_try_that_was_given_back_while_a_cancel_waited_is_withdrawn(observer: Observer) -> None:
    planted = rows.plant("dispatching")
    with transaction.atomic():
        given_back = Settlement(rows.claim_of(planted), Proof.NOT_TAKEN, 0, None)
        operation.settle([given_back], owner=OWNER)
        rival = Rival(lambda: run.cancel([planted.run_id])[planted.run_id])
        observer.see_waiting(rival, "lease.await_holders")
    assert isinstance(rival.result(), Applied)
    assert rows.operation(planted)["status"] == "cancelled"
    assert rows.queued(planted) is None


def test_a_retry_that_waited_for_a_cancel_is_not_scheduled(observer: Observer) -> None:
    planted = rows.plant("unknown")
    with transaction.atomic():
        assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
        rival = Rival(
            lambda: unknown.schedule_retry([Retry(planted.operation_key, 4, 0, rows.HOUR_MS)], losses_below=3)
        )
        observer.see_waiting(rival, "unknown.schedule_retry")
    assert rival.result() == []
    assert (rows.operation(planted)["due_at"], rows.operation(planted)["revision"]) == (None, 4)


def test_a_run_is_finished_by_one_of_two_patrols(observer: Observer) -> None:
    planted = rows.plant("succeeded", run_status="running")

    def finish() -> int:
        return run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler").finished

    with transaction.atomic():
        assert finish() == 1
        rival = Rival(finish)
        assert rival.result() == 0
    assert rows.run(planted)["revision"] == 3
