"""Out of a line leads: being settled, a person's word with a reason, an endpoint's patience, and a cancel."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from deliveries import lines, reconcile
from deliveries.lines import CANCELLED, CONTROL, POLICY
from deliveries.models import Endpoint
from ledger.managers import dispatch, run, task
from ledger.models import Dispatch, Resolution, Task
from ledger.outcome import Applied, Reason, Rejected
from ledger.statements import LEDGER, Statement
from tests.ordered.hands import accepted, answered, claimed, due_now, keys, lost, not_sent, ordered, task_id
from tests.support import deliveries, ledger_rows
from tests.support.database import unguarded
from tests.support.deliveries import Watched
from tests.support.functions import swapped
from tests.support.ledger_rows import RIVAL

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant(db: None) -> str:
    return deliveries.tenant()


def leave(one: Watched, reason: str = "They know that it is missing.") -> Applied[str | None] | Rejected:
    return lines.leave(task_id(one), actor="user:sam", reason=reason)


def in_line(one: Watched) -> tuple[bool, bool]:
    """Whether the task says that it is, and whether its place in the queue does."""
    return Task.objects.get(pk=task_id(one)).in_line, one.pointer.in_line


def test_what_a_person_moves_aside_holds_nobody_and_is_sent_when_it_is_due(tenant: str) -> None:
    ordered(tenant)
    first, second, third = accepted(tenant, 3)
    (head,) = claimed()
    not_sent(head)
    before = first.rows()
    assert leave(first) == Applied("prepared")
    assert first.rows() == before, "neither run nor lease nor operation is changed"
    assert in_line(first) == (False, False)
    (head,) = claimed()
    assert head.key == second.operation_key
    due_now(first)
    assert keys(claimed(RIVAL)) == [first.operation_key], "it waits for nobody, and nobody for it"
    answered(head)
    assert keys(claimed()) == [third.operation_key]


def test_who_moved_it_aside_and_why_is_on_record(tenant: str) -> None:
    ordered(tenant)
    (first,) = accepted(tenant)
    assert isinstance(leave(first, "  A reason.  "), Applied)
    (record,) = Resolution.objects.filter(operation_id=first.operation_key)
    assert (record.actor, record.decision, record.reason) == ("user:sam", "moved_aside", "A reason.")
    assert record.revision_seen == first.operation.revision
    with pytest.raises(ValueError, match="needs a reason"):
        leave(first, "  ")


def test_what_left_its_line_or_was_in_none_is_not_moved_again(tenant: str) -> None:
    endpoint = ordered(tenant)
    (first,) = accepted(tenant)
    assert isinstance(leave(first), Applied)
    assert leave(first) == Rejected(Reason.NOT_IN_LINE, seen_status="prepared")
    Endpoint.objects.filter(pk=endpoint.pk).update(ordered=False)
    (beside,) = accepted(tenant)
    assert leave(beside) == Rejected(Reason.NOT_IN_LINE, seen_status="prepared")
    assert Resolution.objects.count() == 1


def test_what_is_being_sent_is_not_moved_aside_because_the_next_would_overtake_it(tenant: str) -> None:
    ordered(tenant)
    first, _ = accepted(tenant, 2)
    (head,) = claimed()
    assert leave(first) == Rejected(Reason.CLAIMED, seen_status="dispatching")
    answered(head, None)
    due_now(first)
    (head,) = claimed()
    assert leave(first) == Rejected(Reason.CLAIMED, seen_status="unknown"), "also when it is sent again"
    assert claimed(RIVAL) == []
    answered(head)
    assert leave(first) == Rejected(Reason.WRONG_STATUS)
    assert not Resolution.objects.exists()


def test_what_does_not_exist_is_not_moved(tenant: str) -> None:
    ordered(tenant)
    (first,) = accepted(tenant)
    nobody, there = first.event_id, task_id(first)
    answers = task.leave_line({nobody: "x", there: "x"}, actor="user:sam")
    assert answers == {nobody: Rejected(Reason.MISSING), there: Applied("prepared")}


CONDITIONS = {
    "stands in no line": r"WHEN NOT held\.in_line THEN 'not_in_line'\s+",
    "is settled": r"WHEN NOT EXISTS \(SELECT FROM listed WHERE .*?\) THEN 'wrong_status'\s+",
    "is being sent": r"WHEN EXISTS \(SELECT FROM listed\s+WHERE .*?\) THEN 'claimed'\s+",
}


@pytest.mark.parametrize("what", list(CONDITIONS))
def test_this_condition_alone_keeps_what_should_stay_in_its_place(tenant: str, what: str) -> None:
    ordered(tenant)
    first, _ = accepted(tenant, 2)
    if what != "stands in no line":
        (head,) = claimed()
        if what == "is settled":
            answered(head)
    else:
        assert isinstance(leave(first), Applied)
    assert isinstance(leave(first), Rejected)
    whole = LEDGER["task.leave_line"]
    text, found = re.subn(CONDITIONS[what], "", whole.sql, flags=re.DOTALL)
    assert found == 1
    with swapped(Statement(whole.name, text)):
        assert isinstance(leave(first), Applied)


def test_the_first_in_line_is_moved_aside_when_its_endpoint_has_no_more_patience(tenant: str) -> None:
    ordered(tenant, order_patience=2)
    first, second = accepted(tenant, 2)
    (head,) = claimed()
    assert lines.move_aside().moved == 0
    not_sent(head)
    assert lines.move_aside().moved == 0, "once is not twice"
    due_now(first)
    (head,) = claimed()
    assert lines.move_aside().moved == 0, "what is in flight is left alone"
    not_sent(head)
    assert reconcile._move_aside() == 1
    assert lines.move_aside().moved == 0
    (record,) = Resolution.objects.all()
    assert (record.operation_id, record.actor) == (first.operation_key, POLICY)
    assert (record.decision, record.reason) == ("moved_aside", "Not settled after 2 attempts.")
    assert first.status == "prepared"
    assert keys(claimed()) == [second.operation_key]


def test_only_the_first_in_line_is_moved_by_the_policy_and_without_one_nobody_is(tenant: str) -> None:
    patient = ordered(tenant)
    first, _ = accepted(tenant, 2)
    for _ in range(3):
        (head,) = claimed()
        answered(head, 503)
        Endpoint.objects.filter(pk=patient.pk).update(blocked_until=None)
        due_now(first)
    assert lines.move_aside().moved == 0
    Endpoint.objects.filter(pk=patient.pk).update(order_patience=3)
    assert lines.move_aside().moved == 1
    assert lines.move_aside().moved == 0
    assert [one["in_line"] for one in ledger_rows.rows("ledger_dispatch")] == [False, True]


def test_an_unknown_first_one_is_moved_aside_by_the_policy_too(tenant: str) -> None:
    ordered(tenant, idempotent=False, order_patience=1)
    first, second = accepted(tenant, 2)
    claimed()
    lost(first)
    assert lines.move_aside().moved == 1
    assert first.status == "unknown", "it waits for a person as before, and holds nobody"
    assert keys(claimed()) == [second.operation_key]


def test_every_line_is_looked_at_in_bounded_stretches(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "STEPS", 3)
    for _ in range(7):
        ordered(tenant, order_patience=1)
    accepted(tenant)
    for delivery in claimed():
        not_sent(delivery)
    monkeypatch.setattr(reconcile, "_PATROL", reconcile._Patrol())
    assert [reconcile._move_aside() for _ in range(4)] == [3, 3, 1, 0]


def test_a_cancelled_first_one_of_which_nobody_knows_holds_nobody(tenant: str) -> None:
    ordered(tenant, idempotent=False)
    first, second = accepted(tenant, 2)
    (head,) = claimed()
    run.cancel([first.run_id])
    lines.leave_cancelled(task_id(first))
    assert in_line(first) == (True, True), "while it is in flight the next waits"
    assert lines.move_aside().moved == 0
    answered(head, None)
    assert first.status == "unknown"
    assert claimed() == []
    assert lines.move_aside().moved == 1
    (record,) = Resolution.objects.all()
    assert (record.actor, record.decision, record.reason) == (CONTROL, "moved_aside", CANCELLED)
    assert keys(claimed()) == [second.operation_key]


def test_a_pointer_that_is_put_back_takes_its_place_again_unless_it_left_the_line(tenant: str) -> None:
    ordered(tenant)
    first, second, third = accepted(tenant, 3)
    assert isinstance(leave(second), Applied)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_dispatch")
    assert dispatch.repair(0, batch=10).repaired == 3
    assert [one.pointer.in_line for one in (first, second, third)] == [True, False, True]
    ledger_rows.change("ledger_dispatch", {"operation_key": second.operation_key}, in_line=True)
    assert dispatch.repair(0, batch=10).repaired == 1
    assert [one.pointer.in_line for one in (first, second, third)] == [True, False, True]
    assert set(keys(claimed())) == {first.operation_key, second.operation_key}
    assert Dispatch.objects.filter(until__isnull=False).count() == 2
