"""A changed effect is the next version of its step: what becomes of the one before, and when there may be none."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.managers import operation
from ledger.managers.operation import Plan, Planned, Proof, Settlement
from ledger.outcome import Applied, Reason, Rejected
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, TTL_MS, Planted

pytestmark = pytest.mark.django_db


def held(status: str, **columns: Any) -> Planted:
    """A running run under OWNER's lease, whose step `deliver` stands in `status` at version 1."""
    return rows.plant(status, run_status="running", owner=OWNER, **columns)


def plan(planted: Planted, version: int, **changed: Any) -> Applied[Planned] | Rejected:
    known = {
        "run_id": planted.run_id, "epoch": rows.lease(planted)["epoch"], "revision": rows.run(planted)["revision"],
        "step_id": "deliver", "effect_version": version, "tool": "webhook", "request_digest": bytes([version]) * 32,
        "request_ref": planted.event_id, **changed,
    }  # fmt: skip
    (answer,) = operation.plan([Plan(**known)], owner=OWNER).values()
    return answer


@pytest.mark.parametrize("attempts", [0, 1])
def test_what_is_still_prepared_is_cancelled_for_its_next_version_and_kept(attempts: int) -> None:
    planted = held("prepared", attempts=attempts)
    before, run_before = rows.operation(planted), rows.run(planted)
    answer = plan(planted, 2)
    assert isinstance(answer, Applied)
    old, new = rows.rows("ledger_operation", run_id=planted.run_id)
    assert (old["status"], old["due_at"], old["revision"]) == ("cancelled", None, before["revision"] + 1)
    kept = ("request_digest", "tool", "attempts", "effect_version", "request_ref")
    assert [old[name] for name in kept] == [before[name] for name in kept]
    assert (new["status"], new["effect_version"], new["operation_key"]) == ("prepared", 2, answer.row.operation_key)
    assert [one["operation_key"] for one in rows.rows("ledger_dispatch")] == [new["operation_key"]]
    assert rows.run(planted)["revision"] == run_before["revision"] + 1 == answer.row.run_revision


@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_what_may_have_happened_has_no_next_version(status: str) -> None:
    planted = held(status)
    before = rows.everything(but=("ledger_fenced_write",))
    answer = plan(planted, 2)
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.seen_status) == (Reason.UNSETTLED, status)
    assert rows.everything(but=("ledger_fenced_write",)) == before
    (record,) = rows.rows("ledger_fenced_write")
    assert (record["reason"], record["operation_key"]) == ("unsettled", planted.operation_key)


@pytest.mark.parametrize("status", ["succeeded", "failed_final", "cancelled"])
def test_what_is_settled_stays_as_it_is_beside_its_next_version(status: str) -> None:
    planted = held(status)
    before = rows.operation(planted)
    assert isinstance(plan(planted, 2), Applied)
    assert rows.operation(planted) == before


@pytest.mark.parametrize("version", [3, 7])
def test_no_version_is_left_out(version: int) -> None:
    planted = held("prepared")
    answer = plan(planted, version)
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.GAP
    assert len(rows.rows("ledger_operation")) == 1


def test_a_step_begins_with_its_first_version() -> None:
    planted = held("prepared")
    answer = plan(planted, 2, step_id="notify")
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.GAP


def test_a_version_that_was_replaced_keeps_its_id_and_is_not_planned_anew() -> None:
    planted = held("prepared")
    second = plan(planted, 2)
    assert isinstance(second, Applied)
    before = rows.everything()
    again = plan(planted, 1, request_digest=planted.digest, revision=0)
    assert again == Applied(Planned(planted.operation_key, second.row.run_revision)), "naming it again is no write"
    assert rows.everything() == before


@pytest.mark.parametrize("changed", [{"request_digest": b"\x09" * 32}, {"tool": "mail"}])
def test_another_content_under_a_version_that_exists_is_an_integrity_error(changed: dict[str, Any]) -> None:
    planted = held("prepared")
    answer = plan(planted, 1, **{"request_digest": planted.digest, **changed})
    assert isinstance(answer, Rejected)
    assert answer.reason is Reason.INTEGRITY
    assert rows.operation(planted)["status"] == "prepared"


def test_steps_of_one_run_that_are_planned_together_are_one_write_of_the_run() -> None:
    planted = held("prepared")
    revision = rows.run(planted)["revision"]
    plans = [
        Plan(planted.run_id, 3, revision, step, 1, "webhook", b"\x01" * 32, planted.event_id) for step in ("a", "b")
    ]
    answers = operation.plan(plans, owner=OWNER).values()
    assert {answer.row.run_revision for answer in answers if isinstance(answer, Applied)} == {revision + 1}
    assert rows.run(planted)["revision"] == revision + 1
    assert rows.run(planted)["status"] == "running"


def test_the_run_follows_the_version_that_took_the_place() -> None:
    planted = held("prepared")
    answer = plan(planted, 2)
    assert isinstance(answer, Applied)
    rows.change("ledger_lease", {"run_id": planted.run_id}, owner=None)
    (claim,), _ = operation.claim([answer.row.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    operation.settle([Settlement(claim, Proof.ACCEPTED, None, None)], owner=OWNER)
    assert rows.run(planted)["status"] == "succeeded"
