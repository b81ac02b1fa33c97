"""The queue is a pointer: the patrols put back what is missing and remove what is left over."""

from __future__ import annotations

import pytest

from ledger.managers import dispatch, operation, unknown
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import HOUR_MS, OWNER, TTL_MS

pytestmark = pytest.mark.django_db


def test_a_pointer_that_is_missing_is_put_back() -> None:
    waiting = rows.plant("prepared", queued=False)
    sending = rows.plant("dispatching", queued=False)
    lost = rows.plant("unknown", queued=False)
    settled = rows.plant("succeeded")
    patrolled = dispatch.repair(0, batch=10)
    assert (patrolled.repaired, patrolled.walked_to) == (3, settled.operation_key)
    pointers = {one["operation_key"]: one for one in rows.rows("ledger_dispatch")}
    assert set(pointers) == {waiting.operation_key, sending.operation_key, lost.operation_key}
    assert pointers[waiting.operation_key]["due_at"] == rows.operation(waiting)["due_at"]
    assert pointers[sending.operation_key]["until"] == rows.operation(sending)["dispatch_until"]
    assert pointers[lost.operation_key]["unknown_since"] is not None
    assert len(operation.claim([waiting.operation_key], owner=OWNER, ttl_ms=TTL_MS)[0]) == 1


def test_a_pointer_that_waits_for_nothing_waits_for_its_operation_again() -> None:
    parked = rows.plant("prepared")
    again = rows.plant("unknown", due_ms=-1000, retry_until_ms=HOUR_MS)
    over = rows.plant("unknown", due_ms=-1000, retry_until_ms=-1000)
    cancelled = rows.plant("unknown", due_ms=-1000, run_status="cancelled")
    person = rows.plant("unknown")
    every = (parked, again, over, cancelled, person)
    for one in every:
        rows.change("ledger_dispatch", {"operation_key": one.operation_key}, due_at=None)
    assert dispatch.repair(0, batch=10).repaired == 2
    due = [one for one in every if (rows.queued(one) or {})["due_at"] is not None]
    assert due == [parked, again]


def test_a_pointer_to_a_settled_operation_is_removed() -> None:
    waiting, settled = rows.plant("prepared"), rows.plant("prepared")
    rows.change("ledger_operation", {"operation_key": settled.operation_key}, status="succeeded")
    assert dispatch.sweep_left_over(0, batch=10).repaired == 1
    assert [one["operation_key"] for one in rows.rows("ledger_dispatch")] == [waiting.operation_key]


def test_a_patrol_walks_in_stretches_and_says_when_it_came_to_the_end() -> None:
    planted = [rows.plant("prepared", queued=False) for _ in range(5)]
    after, repaired, steps = 0, [], 0
    while (patrolled := dispatch.repair(after, batch=2)).walked_to is not None:
        after, steps = patrolled.walked_to, steps + 1
        repaired.append(patrolled.repaired)
    assert (repaired, after, steps) == ([2, 2, 1], planted[-1].operation_key, 3)


def test_a_pointer_that_speaks_of_a_claim_that_is_none_is_put_right() -> None:
    waiting = rows.plant("prepared")
    rows.change("ledger_dispatch", {"operation_key": waiting.operation_key}, until=rows.from_now(-1000))
    assert dispatch.repair(0, batch=10).repaired == 1
    pointer = rows.queued(waiting)
    assert pointer is not None
    assert (pointer["until"], pointer["due_at"]) == (None, rows.operation(waiting)["due_at"])


def test_a_pointer_that_says_nothing_of_a_claim_is_put_right_and_its_claim_expires() -> None:
    lost = rows.plant("dispatching", lease_ms=-1000, until_ms=-1000)
    rows.change("ledger_dispatch", {"operation_key": lost.operation_key}, until=None)
    assert not unknown.expire_claims(batch=10, owner=OWNER)
    assert dispatch.repair(0, batch=10).repaired == 1
    assert [one.operation_key for one in unknown.expire_claims(batch=10, owner=OWNER)] == [lost.operation_key]


def test_pointers_to_claims_that_are_none_do_not_keep_the_sweep_from_those_behind_them() -> None:
    stray = rows.plant("prepared")
    rows.change("ledger_dispatch", {"operation_key": stray.operation_key}, until=rows.from_now(-HOUR_MS))
    lost = rows.plant("dispatching", lease_ms=-1000, until_ms=-1000)
    assert not unknown.expire_claims(batch=1, owner=OWNER)
    assert [one.operation_key for one in unknown.expire_claims(batch=1, owner=OWNER)] == [lost.operation_key]
    pointer = rows.queued(stray)
    assert pointer is not None
    assert (pointer["until"], pointer["due_at"]) == (None, rows.operation(stray)["due_at"])


def test_a_pointer_that_is_right_is_left_alone() -> None:
    for status in ("prepared", "dispatching", "unknown"):
        rows.plant(status)
    before = rows.rows("ledger_dispatch")
    assert dispatch.repair(0, batch=10).repaired == 0
    assert rows.rows("ledger_dispatch") == before
