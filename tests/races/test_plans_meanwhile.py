"""A second step that is planned while somebody judges that a run has none: nobody ends the run over it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.db import connection, transaction

from ledger.managers import lease, operation, run, task, unknown
from ledger.managers.operation import Plan, Proof, Settled, Settlement
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER, Statement
from ledger.states import Decision, RunReason
from tests.races.rival import Observer, Rival
from tests.support import ledger_rows as rows
from tests.support.functions import swapped
from tests.support.ledger_rows import OWNER, TTL_MS, Planted

GATE = 4711
"""An advisory lock at which a statement is held between its snapshot and its first row lock."""


def plan(planted: Planted) -> int:
    """Plan a second step under the lease that is held now."""
    revision, epoch = rows.run(planted)["revision"], rows.lease(planted)["epoch"]
    second = Plan(planted.run_id, epoch, revision, "notify", 1, "webhook", b"", planted.event_id)
    answer = operation.plan([second], owner=OWNER)[planted.run_id, "notify", 1]
    assert isinstance(answer, Applied)
    return answer.row.operation_key


def acquire_and_plan(planted: Planted) -> int:
    """The same by somebody who takes the lease for it and gives it back."""
    term = lease.acquire([planted.run_id], owner=OWNER, ttl_ms=TTL_MS)[planted.run_id]
    assert isinstance(term, Applied)
    key = plan(planted)
    lease.release([(planted.run_id, term.row.epoch)], owner=OWNER)
    return key


@pytest.fixture
def cut() -> Iterator[Callable[..., None]]:
    """Runs a statement without one of its conditions, until the test ends."""
    with ExitStack() as stack:

        def without(name: str, pattern: str, replacement: str = "") -> None:
            text, found = re.subn(pattern, replacement, LEDGER[name].sql, flags=re.DOTALL)
            assert found == 1
            stack.enter_context(swapped(Statement(name, text)))

        yield without


def settle_meanwhile(observer: Observer) -> tuple[Planted, Applied[Settled] | Rejected]:
    planted = rows.plant("dispatching")
    outcome = Settlement(rows.claim_of(planted), Proof.ACCEPTED, None, None, evidence={"head": "200"})
    with transaction.atomic():
        plan(planted)
        rival = Rival(lambda: operation.settle([outcome], owner=OWNER)[planted.operation_key])
        observer.see_waiting(rival, "operation.settle")
    return planted, rival.result()


def test_a_settle_that_waited_for_a_plan_does_not_end_the_run(observer: Observer) -> None:
    planted, answer = settle_meanwhile(observer)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.CONFLICT
    assert [one["evidence"] for one in rows.rows("ledger_fenced_write")] == ['{"head": "200"}']
    again = Settlement(rows.claim_of(planted), Proof.ACCEPTED, None, None)
    assert isinstance(operation.settle([again], owner=OWNER)[planted.operation_key], Applied), "read back, and again"
    assert (rows.operation(planted)["status"], rows.run(planted)["status"]) == ("succeeded", "running")


def test_a_settle_would_if_it_did_not_compare_the_revision_that_a_plan_raises(
    observer: Observer, cut: Callable[..., None]
) -> None:
    compared = r"OR \(locked\.run_status = 'running' AND locked\.seen_run_revision <> locked\.run_revision\)"
    cut("operation.settle", compared)
    planted, answer = settle_meanwhile(observer)
    assert isinstance(answer, Applied)
    assert rows.run(planted)["status"] == "succeeded", "over, with a step that is prepared"


EVIDENCE: dict[str, Callable[[Planted], Applied[Settled] | Rejected]] = {
    "unknown.converge": lambda planted: unknown.converge(
        operation_key=planted.operation_key, revision=4, proof=Proof.ACCEPTED, retry_ms=None, actor="query", evidence={}
    ),
    "unknown.resolve": lambda planted: unknown.resolve(
        operation_key=planted.operation_key, actor="user:sam", decision=Decision.FAILED, reason="Asked.", revision=4
    ),
}


def evidence_meanwhile(observer: Observer, name: str) -> tuple[Planted, int]:
    planted = rows.plant("unknown")
    with transaction.atomic():
        second = acquire_and_plan(planted)
        rival = Rival(lambda: EVIDENCE[name](planted))
        observer.see_waiting(rival, name)
    assert isinstance(rival.result(), Applied), "its truth is recorded"
    return planted, second


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_that_waited_for_a_plan_settles_its_operation_and_does_not_end_the_run(
    observer: Observer, name: str
) -> None:
    planted, second = evidence_meanwhile(observer, name)
    assert rows.run(planted)["status"] == "running"
    (claim,), _ = operation.claim([second], owner=OWNER, ttl_ms=TTL_MS)
    operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=OWNER)
    assert rows.run(planted)["status"] == "succeeded"


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_would_if_it_did_not_look_whether_the_run_had_moved(
    observer: Observer, cut: Callable[..., None], name: str
) -> None:
    cut(name, "settled.run_unmoved AND ")
    planted, _ = evidence_meanwhile(observer, name)
    assert rows.run(planted)["status"] in ("succeeded", "failed")


def patrol_meanwhile(observer: Observer, cut: Callable[..., None]) -> tuple[Planted, int]:
    """A patrol that has looked at the operations, and has locked nothing yet, when the second step is planned."""
    gated = f"FROM (SELECT *, pg_advisory_xact_lock({GATE}) FROM left_behind OFFSET 0) AS left_behind"  # noqa: S608 - ours
    cut("run.finish_left_behind", r"FROM left_behind(?= JOIN ledger_lease)", gated)
    planted = rows.plant("succeeded", run_status="running")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [GATE])
        try:
            rival = Rival(lambda: run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler").finished)
            observer.see_waiting(rival, "run.finish_left_behind")
            acquire_and_plan(planted)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [GATE])
    return planted, rival.result()


def test_a_patrol_leaves_a_run_for_which_something_was_planned_since_it_looked(
    observer: Observer, cut: Callable[..., None]
) -> None:
    planted, finished = patrol_meanwhile(observer, cut)
    assert (finished, rows.run(planted)["status"]) == (0, "running")
    assert rows.rows("ledger_lease")[0]["epoch"] == 4, "it took no term for it either"


def test_a_patrol_would_end_it_if_it_did_not_compare_the_revision(observer: Observer, cut: Callable[..., None]) -> None:
    cut("run.finish_left_behind", r" AND run\.revision = locked\.revision")
    planted, finished = patrol_meanwhile(observer, cut)
    assert (finished, rows.run(planted)["status"]) == (1, "succeeded")


def replay_meanwhile(observer: Observer, waits_in: str) -> object:
    """A replay that begins while the run gets a second step, which is in flight when the run is cancelled."""
    planted = rows.plant("succeeded", run_status="running")
    with transaction.atomic():
        second = acquire_and_plan(planted)
        assert len(operation.claim([second], owner=OWNER, ttl_ms=TTL_MS)[0]) == 1
        assert isinstance(run.cancel([planted.run_id])[planted.run_id], Applied)
        rival = Rival(lambda: task.open_run([planted.task_id], reason=RunReason.REPLAY)[planted.task_id])
        observer.see_waiting(rival, waits_in)
    return rival.result()


def test_a_replay_that_waited_for_a_plan_is_refused_while_its_operation_is_in_flight(observer: Observer) -> None:
    assert replay_meanwhile(observer, "task.await_openers") == Rejected(Reason.UNSETTLED, seen_status="dispatching")


def test_a_replay_would_be_opened_if_it_did_not_wait_for_the_holder(
    observer: Observer, cut: Callable[..., None]
) -> None:
    cut("task.await_openers", r"(?<=ON lease.run_id = locked.active_run_id)", " AND false")
    assert isinstance(replay_meanwhile(observer, "task.open_run"), Applied)
