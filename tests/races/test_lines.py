"""Two who meet at a line: accepting for it, picking from it, settling its first one, and moving that aside."""

from __future__ import annotations

import pytest
from django.db import transaction

from deliveries import lines, submit
from deliveries.dispatch import claiming
from deliveries.dispatch.claiming import Delivery, Walk
from ledger.models import Dispatch, Operation
from ledger.outcome import Applied, Reason, Rejected
from tests.ordered.hands import accepted, answered, claimed, keys, ordered, task_id
from tests.races.rival import Observer, Rival
from tests.support import deliveries
from tests.support.deliveries import events
from tests.support.ledger_rows import RIVAL, TTL_MS


@pytest.fixture
def tenant(observer: Observer) -> str:
    return deliveries.tenant()


def picked() -> list[Delivery]:
    return claiming.claim(Walk(), owner=RIVAL, batch=100, ttl_ms=TTL_MS)[0]


def test_who_accepts_for_a_line_second_stands_behind_who_came_first_and_is_not_seen_before_him(
    observer: Observer, tenant: str
) -> None:
    ordered(tenant)
    (second,) = events(tenant)
    with transaction.atomic():
        (first,) = accepted(tenant)
        rival = Rival(lambda: submit.submit([second]))
        observer.see_waiting(rival, "event.accept")
        assert Rival(picked).result() == [], "nobody stands there yet"
    (answer,) = rival.result()
    line = list(Dispatch.objects.order_by("operation_id").values_list("operation_id", flat=True))
    assert line[0] == first.operation_key
    assert len(line) == 2
    assert isinstance(answer, submit.Accepted)
    assert Operation.objects.get(pk=line[1]).request_ref == answer.event_id


def test_who_accepts_for_one_line_does_not_wait_for_another_and_two_lines_are_taken_in_one_order(
    observer: Observer, tenant: str
) -> None:
    other = deliveries.tenant()
    ordered(tenant)
    ordered(other)
    with transaction.atomic():
        accepted(tenant)
        beside = Rival(lambda: submit.submit(events(other)))
        assert len(beside.result()) == 1
        both = Rival(lambda: submit.submit([*events(other), *events(tenant)]))
        observer.see_waiting(both, "event.accept")
    assert len(both.result()) == 2


def test_who_picks_while_the_first_one_is_being_settled_gets_nothing_and_afterwards_the_second(
    observer: Observer, tenant: str
) -> None:
    ordered(tenant)
    _, second, _ = accepted(tenant, 3)
    (head,) = claimed()
    with transaction.atomic():
        answered(head)
        assert Rival(picked).result() == [], "it is not known yet that it is settled"
    assert keys(Rival(picked).result()) == [second.operation_key]
    assert Rival(picked).result() == []


def test_who_picks_while_another_claims_the_first_one_gets_nothing(observer: Observer, tenant: str) -> None:
    ordered(tenant)
    first, _ = accepted(tenant, 2)
    with transaction.atomic():
        assert keys(claimed()) == [first.operation_key]
        assert Rival(picked).result() == []
    assert Rival(picked).result() == []


def test_who_picks_while_the_first_one_is_moved_aside_gets_nothing_and_afterwards_both(
    observer: Observer, tenant: str
) -> None:
    ordered(tenant)
    first, second, _ = accepted(tenant, 3)
    with transaction.atomic():
        assert isinstance(lines.leave(task_id(first), actor="user:sam", reason="Asked."), Applied)
        assert Rival(picked).result() == []
    assert set(keys(Rival(picked).result())) == {first.operation_key, second.operation_key}


def test_of_a_claim_and_a_person_who_moves_it_aside_the_first_one_wins(observer: Observer, tenant: str) -> None:
    ordered(tenant)
    (first,) = accepted(tenant)
    with transaction.atomic():
        assert keys(claimed()) == [first.operation_key]
        rival = Rival(lambda: lines.leave(task_id(first), actor="user:sam", reason="Asked."))
        observer.see_waiting(rival, "task.await_openers")
    assert rival.result() == Rejected(Reason.CLAIMED, seen_status="dispatching")
    assert first.pointer.in_line


def test_of_two_who_move_it_aside_one_is_told_that_it_stands_in_no_line(observer: Observer, tenant: str) -> None:
    ordered(tenant)
    (first,) = accepted(tenant)
    with transaction.atomic():
        assert isinstance(lines.leave(task_id(first), actor="user:sam", reason="Asked."), Applied)
        rival = Rival(lambda: lines.leave(task_id(first), actor="user:ada", reason="Asked."))
        observer.see_waiting(rival, "task.await_openers")
    assert rival.result() == Rejected(Reason.NOT_IN_LINE, seen_status="prepared")
