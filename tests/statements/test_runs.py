"""Tasks and runs: opened whole, advanced by their holder, ended by cancel, replayed only when their truth is known."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from deliveries import ids
from ledger.managers import lease, operation, run, task
from ledger.managers.operation import Plan, Planned, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.task import Intent, Opened
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import RunReason
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import MINUTE_MS, OWNER, RIVAL, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def test_everything_of_a_task_exists_from_its_first_moment() -> None:
    event, endpoints = ids.time_ordered(), [ids.time_ordered() for _ in range(3)]
    opened = task.open_tasks([Intent("default", event, one, b"\x05" * 32, "deliver", "webhook") for one in endpoints])
    assert len({one.task_id for one in opened}) == len({one.operation_key for one in opened}) == 3
    for one in opened:
        of = rows.row("ledger_task", task_id=one.task_id)
        assert (of["active_run_id"], of["event_id"], of["tenant_id"]) == (one.run_id, event, "default")
        first = rows.row("ledger_run", run_id=one.run_id)
        assert (first["task_id"], first["status"], first["revision"], first["reason"]) == (
            one.task_id,
            "pending",
            0,
            "submit",
        )
        held = rows.row("ledger_lease", run_id=one.run_id)
        assert (held["owner"], held["epoch"]) == (None, 0)
        seen = rows.row("ledger_operation", operation_key=one.operation_key)
        assert (seen["run_id"], seen["status"], seen["revision"], seen["attempts"]) == (one.run_id, "prepared", 0, 0)
        assert (seen["request_ref"], bytes(seen["request_digest"]), seen["effect_version"]) == (event, b"\x05" * 32, 1)
        pointer = rows.row("ledger_dispatch", operation_key=one.operation_key)
        assert (pointer["due_at"], pointer["until"], pointer["unknown_since"]) == (seen["due_at"], None, None)
        assert pointer["endpoint_id"] == of["endpoint_id"]
    assert {row["endpoint_id"] for row in rows.rows("ledger_task")} == set(endpoints)
    claimed, _ = operation.claim([one.operation_key for one in opened], owner=OWNER, ttl_ms=TTL_MS)
    assert len(claimed) == 3


def test_a_task_may_be_due_later() -> None:
    moment = rows.run(rows.plant())["created_at"].replace(year=2100)
    (opened,) = task.open_tasks([Intent("default", uuid.uuid4(), uuid.uuid4(), b"", "deliver", "webhook", moment)])
    assert rows.row("ledger_operation", operation_key=opened.operation_key)["due_at"] == moment
    assert operation.claim([opened.operation_key], owner=OWNER, ttl_ms=TTL_MS) == ([], {})


def planning(planted: Planted, **changed: Any) -> Applied[Planned] | Rejected:
    plan = {
        "run_id": planted.run_id, "epoch": rows.lease(planted)["epoch"], "revision": rows.run(planted)["revision"],
        "step_id": "notify", "effect_version": 1, "tool": "webhook", "request_digest": b"\x01" * 32,
        "request_ref": planted.event_id, **changed,
    }  # fmt: skip
    return operation.plan([Plan(**plan)], owner=OWNER)[planted.run_id, plan["step_id"], plan["effect_version"]]


def held_run() -> Planted:
    return rows.plant("prepared", run_status="running", owner=OWNER)


def test_the_same_intent_planned_again_is_the_same_operation() -> None:
    planted = held_run()
    first = planning(planted)
    assert isinstance(first, Applied)
    before = rows.everything()
    assert planning(planted) == first
    assert rows.everything() == before
    pointer = rows.row("ledger_dispatch", operation_key=first.row.operation_key)
    assert (pointer["run_id"], pointer["endpoint_id"]) == (planted.run_id, planted.endpoint_id)


@pytest.mark.parametrize("changed", [{"request_digest": b"\x02" * 32}, {"tool": "mail"}])
def test_another_intent_under_a_planned_id_is_an_integrity_error(changed: dict[str, Any]) -> None:
    planted = held_run()
    first = planning(planted)
    assert isinstance(first, Applied)
    before = rows.everything(but=("ledger_fenced_write",))
    answer = planning(planted, **changed)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.INTEGRITY
    assert rows.everything(but=("ledger_fenced_write",)) == before
    (record,) = rows.rows("ledger_fenced_write")
    assert (record["statement"], record["reason"], record["operation_key"]) == (
        "operation.plan",
        "integrity",
        first.row.operation_key,
    )


def test_two_checkpoints_in_one_epoch_are_both_applied_and_the_revision_rises_by_one_each_time() -> None:
    planted = held_run()
    epoch, revision = rows.lease(planted)["epoch"], rows.run(planted)["revision"]
    for number in (1, 2):
        held = Held(planted.run_id, epoch, revision + number - 1)
        answer = run.save_checkpoint([held], [{"page": number}], owner=OWNER)[planted.run_id]
        assert isinstance(answer, Applied)
        assert answer.row.revision == revision + number
    assert json.loads(rows.run(planted)["checkpoint"]) == {"page": 2}


def test_a_batch_names_each_run_once() -> None:
    planted = held_run()
    held = Held(planted.run_id, 3, 2)
    with pytest.raises(ValueError, match="each run once"):
        run.save_checkpoint([held, held], [1, 2], owner=OWNER)


@pytest.mark.parametrize("status", ["prepared", "dispatching", "unknown"])
def test_nobody_may_end_a_run_whose_operation_is_unsettled(status: str) -> None:
    planted = rows.plant(status, run_status="running", owner=OWNER)
    before = rows.everything(but=("ledger_fenced_write",))
    held = Held(planted.run_id, rows.lease(planted)["epoch"], rows.run(planted)["revision"])
    for end in (run.succeed, run.fail):
        answer = end([held], owner=OWNER)[planted.run_id]
        assert isinstance(answer, Rejected)
        assert answer.reason is Reason.UNSETTLED
    assert rows.everything(but=("ledger_fenced_write",)) == before


def test_a_run_that_is_cancelled_while_prepared_is_never_sent() -> None:
    planted = rows.plant("prepared")
    answer = run.cancel([planted.run_id])[planted.run_id]
    assert isinstance(answer, Applied)
    seen = rows.operation(planted)
    assert (rows.run(planted)["status"], seen["status"], seen["due_at"]) == ("cancelled", "cancelled", None)
    assert rows.queued(planted) is None
    assert operation.claim([planted.operation_key], owner=OWNER, ttl_ms=TTL_MS) == ([], {})


@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_what_may_have_been_sent_is_not_called_unexecuted_by_a_cancel(status: str) -> None:
    planted = rows.plant(status, due_ms=-1000)
    before = rows.operation(planted)
    assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
    assert rows.operation(planted) == before
    assert rows.run(planted)["status"] == "cancelled"
    assert rows.queued(planted) is not None
    assert operation.claim([planted.operation_key], owner=RIVAL, ttl_ms=TTL_MS)[0] == []


def test_the_truth_about_what_was_in_flight_is_still_recorded_after_a_cancel() -> None:
    planted = rows.plant("dispatching")
    claim = rows.claim_of(planted)
    run.cancel([planted.run_id])
    answers = operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=OWNER)
    assert isinstance(answers[planted.operation_key], Applied)
    assert (rows.operation(planted)["status"], rows.run(planted)["status"]) == ("succeeded", "cancelled")


def replay(planted: Planted) -> Applied[Opened] | Rejected:
    return task.open_run([planted.task_id], reason=RunReason.REPLAY)[planted.task_id]


@pytest.mark.parametrize("status", ["succeeded", "failed_final", "cancelled"])
def test_a_replay_is_a_new_run_with_a_new_operation_for_the_same_bytes(status: str) -> None:
    planted = rows.plant(status)
    before = rows.operation(planted)
    answer = replay(planted)
    assert isinstance(answer, Applied)
    assert rows.row("ledger_task", task_id=planted.task_id)["active_run_id"] == answer.row.run_id != planted.run_id
    fresh = rows.row("ledger_operation", operation_key=answer.row.operation_key)
    assert (fresh["status"], fresh["attempts"], fresh["revision"]) == ("prepared", 0, 0)
    same = ("request_ref", "request_digest", "step_id", "tool", "effect_version")
    assert [fresh[name] for name in same] == [before[name] for name in same]
    assert rows.operation(planted) == before
    assert rows.row("ledger_lease", run_id=answer.row.run_id)["epoch"] == 0
    assert rows.row("ledger_run", run_id=answer.row.run_id)["reason"] == "replay"
    assert len(operation.claim([answer.row.operation_key], owner=OWNER, ttl_ms=TTL_MS)[0]) == 1


@pytest.mark.parametrize(
    ("status", "run_status", "reason", "seen"),
    [
        ("unknown", "running", Reason.WRONG_STATUS, "running"),
        ("prepared", "pending", Reason.WRONG_STATUS, "pending"),
        ("unknown", "cancelled", Reason.UNSETTLED, "unknown"),
        ("dispatching", "cancelled", Reason.UNSETTLED, "dispatching"),
    ],
)
def test_a_task_whose_truth_is_not_known_is_not_replayed(
    status: str, run_status: str, reason: Reason, seen: str
) -> None:
    planted = rows.plant(status, run_status=run_status)
    before = rows.everything()
    assert replay(planted) == Rejected(reason, seen_status=seen)
    assert rows.everything() == before


def test_a_replay_looks_at_every_run_of_the_task() -> None:
    planted = rows.plant("unknown", run_status="cancelled")
    second = rows.plant("succeeded")
    rows.change("ledger_run", {"run_id": second.run_id}, task_id=planted.task_id)
    rows.change("ledger_task", {"task_id": planted.task_id}, active_run_id=second.run_id)
    assert replay(planted) == Rejected(Reason.UNSETTLED, seen_status="unknown")


@pytest.mark.parametrize(("status", "run_status"), [("succeeded", "succeeded"), ("failed_final", "failed")])
def test_the_reconciler_finishes_a_run_that_its_operation_left_behind(status: str, run_status: str) -> None:
    planted = rows.plant(status, run_status="running", owner=OWNER, lease_ms=-1000)
    epoch, revision = rows.lease(planted)["epoch"], rows.run(planted)["revision"]
    patrolled = run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler")
    assert (patrolled.finished, patrolled.walked_to) == (1, planted.run_id)
    assert (rows.run(planted)["status"], rows.run(planted)["revision"]) == (run_status, revision + 1)
    assert (rows.lease(planted)["owner"], rows.lease(planted)["epoch"]) == (None, epoch + 1)
    (takeover,) = rows.rows("ledger_takeover")
    assert takeover["previous_owner"] == OWNER


@pytest.mark.parametrize("status", ["prepared", "dispatching", "unknown", "cancelled"])
def test_the_reconciler_finishes_no_run_whose_operation_did_not_end_it(status: str) -> None:
    rows.plant(status, run_status="running", lease_ms=-1000)
    before = rows.everything()
    assert run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler").finished == 0
    assert rows.everything() == before


def test_a_lease_is_acquired_held_or_not_there() -> None:
    free, taken, nobody = rows.plant(), rows.plant(owner=RIVAL, run_status="running"), uuid.uuid4()
    answers = lease.acquire([free.run_id, taken.run_id, nobody], owner=OWNER, ttl_ms=MINUTE_MS)
    acquired, refused = answers[free.run_id], answers[taken.run_id]
    assert isinstance(acquired, Applied)
    assert (acquired.row.owner, acquired.row.epoch) == (OWNER, 1)
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.seen_owner) == (Reason.LEASE_HELD, RIVAL)
    assert answers[nobody] == Rejected(Reason.MISSING)
    released = lease.release([(free.run_id, 1)], owner=OWNER)[free.run_id]
    assert isinstance(released, Applied)
    again = lease.acquire([free.run_id], owner=OWNER, ttl_ms=MINUTE_MS)[free.run_id]
    assert isinstance(again, Applied)
    assert again.row.epoch == 2, "the epoch is never zeroed"
