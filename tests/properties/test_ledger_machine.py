"""A machine that does anything in any order, with any term and any claim that was ever granted, against PostgreSQL."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ledger.managers import dispatch, lease, operation, run, task, unknown
from ledger.managers.operation import Claimed, Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.task import Intent
from ledger.managers.unknown import Retry
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import OPERATION_TERMINAL, RUN_TERMINAL, Decision, RunReason
from tests.properties.invariants import View, check_moment, check_step
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, from_now

OWNERS = ("worker/a", "worker/b", "worker/c")
PATROL = "reconciler"
START = uuid.UUID(int=0)
AUTHORITATIVE = (Proof.ACCEPTED, Proof.NOT_TAKEN, Proof.FINAL)

owners = st.sampled_from(OWNERS)
picks = st.integers(min_value=0, max_value=10_000)
tries = st.sampled_from([None, 0])
windows = st.sampled_from([None, HOUR_MS])
ages = st.sampled_from([0, 0, 0, -1])
"""How old the revision is that somebody saw: mostly the current one."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A term that was granted once, and the claim that came with it, if one did."""

    run_id: uuid.UUID
    owner: str
    epoch: int
    claim: Claimed | None


class Ledger(RuleBasedStateMachine):
    """Two tasks. `statement` is what the last step ran; `before` is what it found."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[uuid.UUID] = []
        self.granted: list[Granted] = []
        self.statement = ""
        self.before = View.of([])

    @initialize()
    def open(self) -> None:
        rows.empty()  # What another example left behind would be swept by this one.
        intent = Intent("default", uuid.uuid4(), uuid.uuid4(), bytes([1]) * 32, "deliver", "webhook")
        self.tasks = [one.task_id for one in task.open_tasks([intent, intent])]
        self.before = View.of(self.tasks)
        assert len(self.before.operation) == 2

    def any_operation(self, pick: int) -> dict[str, Any]:
        every = sorted(self.before.operation)
        return dict(self.before.operation[every[pick % len(every)]])

    def any_run(self, pick: int) -> uuid.UUID:
        every = sorted(self.before.run)
        return every[pick % len(every)]

    def any_granted(self, pick: int) -> Granted:
        return self.granted[-1 - pick % len(self.granted)]

    def current(self, one: Granted) -> bool:
        held = self.before.lease[one.run_id]
        return self.before.live(one.run_id) and (held["owner"], held["epoch"]) == (one.owner, one.epoch)

    def grant(self, one: Granted) -> None:
        """Of all terms of a run this is the latest, and there was none like it."""
        assert all(one.epoch > other.epoch for other in self.granted if other.run_id == one.run_id)
        self.granted.append(one)

    # What a worker does.

    @rule(owner=owners)
    def claim(self, owner: str) -> None:
        self.statement = "operation.claim"
        for one in operation.claim(sorted(self.before.operation), owner=owner, ttl_ms=HOUR_MS)[0]:
            assert not self.before.live(one.run_id)
            assert self.before.operation[one.operation_key]["dispatch_owner"] is None
            self.grant(Granted(one.run_id, owner, one.epoch, one))

    @rule(owner=owners, pick=picks)
    def acquire(self, owner: str, pick: int) -> None:
        self.statement, run_id = "lease.acquire", self.any_run(pick)
        answer = lease.acquire([run_id], owner=owner, ttl_ms=HOUR_MS)[run_id]
        assert isinstance(answer, Applied) is not self.before.live(run_id)
        if isinstance(answer, Applied):
            self.grant(Granted(run_id, owner, answer.row.epoch, None))

    @precondition(lambda self: any(one.claim for one in self.granted))
    @rule(pick=picks, proof=st.sampled_from(Proof), retry_ms=tries, window_ms=windows)
    def settle(self, pick: int, proof: Proof, retry_ms: int | None, window_ms: int | None) -> None:
        self.statement = "operation.settle"
        claimed = [one for one in self.granted if one.claim]
        one = claimed[-1 - pick % len(claimed)]
        assert one.claim is not None
        settlement = Settlement(one.claim, proof, retry_ms, window_ms, evidence={"of": one.epoch})
        answer = operation.settle([settlement], owner=one.owner)[one.claim.operation_key]
        seen, of = self.before.operation[one.claim.operation_key], self.before.run[one.run_id]
        valid = (
            self.current(one)
            and (seen["dispatch_owner"], seen["dispatch_epoch"]) == (one.owner, one.epoch)
            and seen["revision"] == one.claim.revision
            and (of["status"] != "running" or of["revision"] == one.claim.run_revision)
        )
        assert isinstance(answer, Applied) is valid, answer
        if isinstance(answer, Applied):
            now = rows.row("ledger_operation", operation_key=one.claim.operation_key)
            assert now["losses"] == (seen["losses"] if proof is Proof.UNSENT else 0)
            assert answer.row.status == settled_as(proof, seen["ambiguous"], retry_ms, of["status"] == "cancelled")
        else:
            records = rows.rows("ledger_fenced_write", run_id=one.run_id)
            assert records[-1]["evidence"] == f'{{"of": {one.epoch}}}', "what really arrived is kept"

    @precondition(lambda self: self.granted)
    @rule(pick=picks, verb=st.sampled_from(["renew", "release"]))
    def renew_or_release(self, pick: int, verb: str) -> None:
        self.statement, one = f"lease.{verb}", self.any_granted(pick)
        held = self.before.lease[one.run_id]
        if verb == "renew":
            answer, valid = lease.renew([(one.run_id, one.epoch)], owner=one.owner, ttl_ms=HOUR_MS), self.current(one)
        else:
            answer = lease.release([(one.run_id, one.epoch)], owner=one.owner)
            valid = (held["owner"], held["epoch"]) == (one.owner, one.epoch)
        assert isinstance(answer[one.run_id], Applied) is valid

    @precondition(lambda self: self.granted)
    @rule(pick=picks, age=ages, verb=st.sampled_from(["start", "save_checkpoint", "succeed", "fail"]))
    def write_run(self, pick: int, age: int, verb: str) -> None:
        self.statement, one = f"run.{verb}", self.any_granted(pick)
        held = [Held(one.run_id, one.epoch, self.before.run[one.run_id]["revision"] + age)]
        if verb == "save_checkpoint":
            answer = run.save_checkpoint(held, [{"n": pick}], owner=one.owner)[one.run_id]
        else:
            answer = {"start": run.start, "succeed": run.succeed, "fail": run.fail}[verb](held, owner=one.owner)[
                one.run_id
            ]
        if isinstance(answer, Applied):
            assert self.current(one)
            assert age == 0
        elif not self.current(one):
            assert isinstance(answer, Rejected)
            assert answer.reason is Reason.LEASE_LOST

    @precondition(lambda self: self.granted)
    @rule(pick=picks, age=ages, step=st.sampled_from(["deliver", "notify"]), version=st.integers(1, 4))
    def plan(self, pick: int, age: int, step: str, version: int) -> None:
        self.statement, one = "operation.plan", self.any_granted(pick)
        of = self.before.run[one.run_id]
        planned = Plan(
            one.run_id, one.epoch, of["revision"] + age, step, version, "webhook", bytes([version]) * 32, uuid.uuid4()
        )
        answer = operation.plan([planned], owner=one.owner)[one.run_id, step, version]
        versions = {
            other["effect_version"]: other["status"] for other in self.before.operation.values()
            if (other["run_id"], other["step_id"]) == (one.run_id, step)
        }  # fmt: skip
        if not (self.current(one) and of["status"] == "running"):
            assert isinstance(answer, Rejected)
            assert answer.reason is (Reason.WRONG_STATUS if self.current(one) else Reason.LEASE_LOST)
        elif version in versions:
            assert isinstance(answer, Applied), "the same intent again"
        elif age or (version > 1 and version - 1 not in versions):
            assert isinstance(answer, Rejected)
            assert answer.reason is (Reason.CONFLICT if age else Reason.GAP)
        else:
            before = versions.get(version - 1)
            assert isinstance(answer, Applied) is (before not in ("dispatching", "unknown")), answer

    # What the reconciler, a person and the control plane do.

    @rule()
    def expire_claims(self) -> None:
        self.statement = "unknown.expire_claims"
        for one in unknown.expire_claims(batch=10, owner=PATROL):
            seen, held = self.before.operation[one.operation_key], self.before.lease[one.run_id]
            assert (seen["dispatch_owner"], seen["dispatch_epoch"]) == (one.lost_owner, one.lost_epoch)
            own = (held["owner"], held["epoch"]) == (one.lost_owner, one.lost_epoch)
            assert not (own and self.before.live(one.run_id))
            assert one.losses == seen["losses"] + 1

    @rule(pick=picks, age=ages)
    def schedule_retry(self, pick: int, age: int) -> None:
        self.statement, seen = "unknown.schedule_retry", self.any_operation(pick)
        wish = Retry(seen["operation_key"], seen["revision"] + age, 0, HOUR_MS)
        scheduled = unknown.schedule_retry([wish], losses_below=2)
        free = seen["status"] == "unknown" and seen["dispatch_owner"] is None and seen["losses"] < 2
        assert bool(scheduled) is (free and age == 0 and self.before.run[seen["run_id"]]["status"] != "cancelled")

    @rule(pick=picks, age=ages, decision=st.sampled_from([Decision.SUCCEEDED, Decision.FAILED, Decision.RETRY]))
    def resolve(self, pick: int, age: int, decision: Decision) -> None:
        self.statement, seen = "unknown.resolve", self.any_operation(pick)
        answer = unknown.resolve(
            operation_key=seen["operation_key"], actor="user:sam", decision=decision, reason="Asked.",
            revision=seen["revision"] + age,
        )  # fmt: skip
        if isinstance(answer, Applied):
            assert (seen["status"], seen["dispatch_owner"], age) == ("unknown", None, 0)
            assert not self.before.live(seen["run_id"])
            if decision is Decision.RETRY:
                assert rows.row("ledger_operation", operation_key=seen["operation_key"])["losses"] == 0

    @rule(pick=picks, age=ages, proof=st.sampled_from(AUTHORITATIVE), retry_ms=tries)
    def converge(self, pick: int, age: int, proof: Proof, retry_ms: int | None) -> None:
        self.statement, seen = "unknown.converge", self.any_operation(pick)
        answer = unknown.converge(
            operation_key=seen["operation_key"], revision=seen["revision"] + age, proof=proof, retry_ms=retry_ms,
            actor="query", evidence={},
        )  # fmt: skip
        if isinstance(answer, Applied):
            assert (seen["status"], seen["dispatch_owner"], age) == ("unknown", None, 0)
            again = retry_ms is not None and self.before.run[seen["run_id"]]["status"] == "running"
            not_taken = "prepared" if again else "failed_final"
            wanted = {Proof.ACCEPTED: "succeeded", Proof.FINAL: "failed_final"}.get(proof, not_taken)
            assert answer.row.status == wanted

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        self.statement, run_id = "run.cancel", self.any_run(pick)
        answer = run.cancel([run_id])[run_id]
        assert isinstance(answer, Applied) is (self.before.run[run_id]["status"] not in RUN_TERMINAL)

    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        self.statement, task_id = "task.open_run", self.tasks[pick % 2]
        answer = task.open_run([task_id], reason=RunReason.REPLAY)[task_id]
        mine = [run_id for run_id, of in self.before.run.items() if of["task_id"] == task_id]
        over = self.before.run[self.before.task[task_id]["active_run_id"]]["status"] in RUN_TERMINAL
        known = all(
            one["status"] in OPERATION_TERMINAL for one in self.before.operation.values() if one["run_id"] in mine
        )
        assert isinstance(answer, Applied) is (over and known)

    @rule()
    def patrol(self) -> None:
        self.statement = "run.finish_left_behind"
        run.finish_left_behind(START, batch=100, owner=PATROL)
        assert dispatch.sweep_left_over(0, batch=100).repaired == 0, "nothing is ever left over"

    # What time does: rows planted in the past.

    @rule(pick=picks, whole=st.booleans())
    def lease_runs_out(self, pick: int, whole: bool) -> None:
        run_id = self.any_run(pick)
        rows.change("ledger_lease", {"run_id": run_id}, expires_at=from_now(-1000))
        for key, seen in self.before.operation.items():
            if whole and seen["run_id"] == run_id and seen["dispatch_owner"]:
                rows.change("ledger_operation", {"operation_key": key}, dispatch_until=from_now(-1000))
                rows.change("ledger_dispatch", {"operation_key": key}, until=from_now(-1000))
        self.time_passed()

    @rule(pick=picks)
    def window_ends(self, pick: int) -> None:
        seen = self.any_operation(pick)
        if seen["status"] == "unknown" and seen["retry_until"]:
            rows.change("ledger_operation", {"operation_key": seen["operation_key"]}, retry_until=from_now(-1000))
            self.time_passed()

    @rule()
    def parked_ones_come_back(self) -> None:
        for key, pointer in self.before.dispatch.items():
            if pointer["due_at"] and not pointer["until"]:
                rows.change("ledger_dispatch", {"operation_key": key}, due_at=from_now(-1000))
        self.time_passed()

    def time_passed(self) -> None:
        self.statement, self.before = "time", View.of(self.tasks)

    @invariant()
    def holds(self) -> None:
        now = View.of(self.tasks)
        check_moment(now)
        check_step(self.before, now, self.statement)
        self.before = now

    def teardown(self) -> None:
        """Whatever happened, it can be brought to an end: nothing is stuck."""
        now = View.of(self.tasks)
        for run_id in now.run:
            rows.change("ledger_lease", {"run_id": run_id}, expires_at=from_now(-1000))
        for key in (key for key, pointer in now.dispatch.items() if pointer["until"]):
            rows.change("ledger_operation", {"operation_key": key}, dispatch_until=from_now(-1000))
            rows.change("ledger_dispatch", {"operation_key": key}, until=from_now(-1000))
        unknown.expire_claims(batch=100, owner=PATROL)
        for key, seen in View.of(self.tasks).operation.items():
            if seen["status"] == "unknown":
                answer = unknown.resolve(
                    operation_key=key, actor="user:sam", decision=Decision.FAILED, reason="The end.",
                    revision=seen["revision"],
                )  # fmt: skip
                assert isinstance(answer, Applied), answer
            elif seen["status"] == "prepared":
                rows.change("ledger_dispatch", {"operation_key": key}, due_at=from_now(-1000))
                claims, refused = operation.claim([key], owner="worker/last", ttl_ms=HOUR_MS)
                assert len(claims) == 1, refused
                operation.settle([Settlement(claims[0], Proof.ACCEPTED, None, None)], owner="worker/last")
        run.finish_left_behind(START, batch=100, owner=PATROL)
        end = View.of(self.tasks)
        assert {one["status"] for one in end.operation.values()} <= OPERATION_TERMINAL
        assert {one["status"] for one in end.run.values()} <= RUN_TERMINAL
        assert not end.dispatch


def settled_as(proof: Proof, ambiguous: bool, retry_ms: int | None, cancelled: bool) -> str:
    """The protocol's table, once more and by itself."""
    if proof is Proof.ACCEPTED:
        return "succeeded"
    if proof is Proof.AMBIGUOUS or ambiguous:
        return "unknown"
    if cancelled or proof is Proof.FINAL:
        return "failed_final"
    return "prepared" if proof is Proof.UNSENT or retry_ms is not None else "failed_final"


@pytest.mark.django_db(transaction=True)
def test_no_order_of_steps_breaks_an_invariant() -> None:
    bounded = settings(
        max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(Ledger, settings=bounded)
