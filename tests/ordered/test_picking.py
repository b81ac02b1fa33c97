"""Of what stands in line only the first is sent, whoever looks and whatever became of it; nothing else waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from deliveries import endpoints, reconcile
from deliveries.dispatch import claiming
from deliveries.dispatch.claiming import Found, Walk
from deliveries.queries import DELIVERIES
from deliveries.reconcile import _KeyRow
from ledger.managers import run, task
from ledger.models import Dispatch
from ledger.outcome import Applied
from ledger.statements import session
from ledger.states import RunReason
from tests.ordered.hands import accepted, answered, claimed, due_now, keys, lost, not_sent, ordered, task_id
from tests.support import deliveries
from tests.support.database import unguarded
from tests.support.deliveries import Watched, events, submitted_in_silence
from tests.support.ledger_rows import RIVAL, TTL_MS

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant(db: None) -> str:
    return deliveries.tenant()


def test_one_at_a_time_is_claimed_in_the_order_of_acceptance(tenant: str) -> None:
    ordered(tenant)
    line = accepted(tenant, 5)
    for one in line:
        (head,) = claimed()
        assert head.key == one.operation_key
        assert claimed(RIVAL) == claimed() == [], "the next waits for it"
        answered(head)
    assert claimed() == []


@pytest.mark.parametrize("join", ["enable_nestloop", "enable_hashjoin", "enable_mergejoin"])
def test_a_batch_stands_in_line_in_its_own_order_whatever_the_planner_thinks_of(tenant: str, join: str) -> None:
    first, second = ordered(tenant), ordered(tenant)
    with unguarded(), connection.cursor() as cursor:  # many endpoints, so that the events are the small side of a join
        cursor.execute(
            "INSERT INTO deliveries_endpoint (endpoint_id, tenant_id, url, description, types, headers, secret_sealed,"
            " enabled, disabled_reason, idempotent, window_hours, retry_schedule, retry_jitter,"
            " retry_max_age_hours, in_flight) SELECT gen_random_uuid(), %s, 'http://127.0.0.1:9/', '', '{nothing}',"
            " '{}', '', true, '', true,"
            " 72, '{5}', 0.2, 72, 16 FROM generate_series(1, 2000)",
            [tenant],
        )
        cursor.execute("ANALYZE deliveries_endpoint")
    others = {"enable_nestloop", "enable_hashjoin", "enable_mergejoin"} - {join}
    with session(**dict.fromkeys(others, "off"), plan_cache_mode="force_custom_plan"):
        accepted_ids = list(dict.fromkeys(one.event_id for one in accepted(tenant, 50)))
    for endpoint in (first, second):
        line = Dispatch.objects.filter(endpoint_id=endpoint.endpoint_id).order_by("operation_id")
        assert [pointer.operation.request_ref for pointer in line.select_related("operation")] == accepted_ids


def test_a_batch_of_which_one_event_must_be_judged_by_a_filter_keeps_its_order(tenant: str) -> None:
    endpoint = ordered(tenant)
    deliveries.endpoint(tenant, "http://127.0.0.1:9/", types=["judged"], filter={"number": 7})
    batch = [events(tenant, type="judged")[0], *events(tenant, 3, type="plain"), events(tenant, type="judged")[0]]
    line = [one for one in submitted_in_silence(batch) if one.pointer.endpoint_id == endpoint.endpoint_id]
    assert len(line) == 5
    assert [one.event_id for one in line] == sorted(one.event_id for one in line)
    by_key = sorted(line, key=lambda one: one.operation_key)
    assert [one.event_id for one in by_key] == [one.event_id for one in line]


def test_a_first_one_that_failed_holds_the_line_until_its_next_attempt(tenant: str) -> None:
    ordered(tenant)
    first, second = accepted(tenant, 2)
    for fail in (lambda d: answered(d, 503), not_sent, lambda d: answered(d, 500), lambda d: answered(d, None)):
        (head,) = claimed()
        assert head.key == first.operation_key
        fail(head)
        assert claimed() == claimed(RIVAL) == [], "its next attempt is not due"
        due_now(first)
    (head,) = claimed(RIVAL)
    answered(head, owner=RIVAL)
    assert first.status == "succeeded"
    assert keys(claimed()) == [second.operation_key]


def test_a_first_one_that_ended_for_good_holds_nobody(tenant: str) -> None:
    ordered(tenant, retry_schedule=[])
    first, cancelled, third = accepted(tenant, 3)
    run.cancel([cancelled.run_id])
    (head,) = claimed()
    answered(head, 400)
    assert (first.status, cancelled.status) == ("failed_final", "cancelled")
    assert keys(claimed()) == [third.operation_key]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_first_one_whose_worker_was_lost_holds_the_line_until_it_is_known(tenant: str, idempotent: bool) -> None:
    ordered(tenant, idempotent=idempotent)
    first, second = accepted(tenant, 2)
    assert keys(claimed()) == [first.operation_key]
    lost(first)
    assert first.status == "unknown"
    assert claimed() == []
    assert reconcile._schedule() == int(idempotent)
    if idempotent:
        due_now(first)
        (head,) = claimed(RIVAL)
        assert head.key == first.operation_key
        answered(head, owner=RIVAL)
        assert keys(claimed()) == [second.operation_key]
    else:
        assert claimed() == [], "nobody knows, and nobody sends it again: the line waits for a person"


def test_what_is_scheduled_for_later_stands_beside_the_line_and_holds_nobody(tenant: str) -> None:
    ordered(tenant)
    later, soon = accepted(tenant, 2, deliver_at=datetime.now(UTC) + timedelta(hours=1))
    first, second = accepted(tenant, 2)
    assert [one.pointer.in_line for one in (later, soon, first, second)] == [False, False, True, True]
    assert [one.run.task.in_line for one in (later, soon, first, second)] == [False, False, True, True]
    (head,) = claimed()
    assert head.key == first.operation_key
    due_now(later)
    due_now(soon)
    assert set(keys(claimed())) == {later.operation_key, soon.operation_key}, "it waits for nobody either"
    answered(head)
    assert keys(claimed()) == [second.operation_key]


def test_what_was_scheduled_for_a_time_that_is_over_stands_in_line(tenant: str) -> None:
    ordered(tenant)
    first, second = accepted(tenant, 2, deliver_at=datetime.now(UTC) - timedelta(hours=1))
    assert keys(claimed()) == [first.operation_key]
    assert claimed() == []
    assert second.pointer.in_line


def test_an_endpoint_that_receives_nothing_keeps_its_line(tenant: str) -> None:
    endpoint = ordered(tenant)
    first, second = accepted(tenant, 2)
    endpoints.update(tenant, endpoint.endpoint_id, {"enabled": False})
    assert claimed() == []
    endpoints.update(tenant, endpoint.endpoint_id, {"enabled": True})
    (head,) = claimed()
    assert head.key == first.operation_key
    answered(head, None)
    endpoints.update(tenant, endpoint.endpoint_id, {"enabled": False})
    assert reconcile._withdraw() == 1, "a retry that nobody would make"
    endpoints.update(tenant, endpoint.endpoint_id, {"enabled": True})
    assert claimed() == []
    assert reconcile._schedule() == 1
    due_now(first)
    (head,) = claimed()
    answered(head)
    assert keys(claimed()) == [second.operation_key]


def test_a_line_of_a_deleted_endpoint_is_cancelled(tenant: str) -> None:
    endpoint = ordered(tenant)
    line = accepted(tenant, 3)
    endpoints.delete(tenant, endpoint.endpoint_id)
    assert claimed() == []
    assert reconcile._cancel_for_deleted() == 3
    assert {one.status for one in line} == {"cancelled"}


def test_a_line_that_stands_drains_in_order_when_the_endpoint_is_ordered_no_more(tenant: str) -> None:
    endpoint = ordered(tenant)
    first, second = accepted(tenant, 2)
    endpoints.update(tenant, endpoint.endpoint_id, {"ordered": False})
    beside = accepted(tenant, 2)
    endpoints.update(tenant, endpoint.endpoint_id, {"ordered": True})
    (last,) = accepted(tenant)
    found = claimed()
    assert set(keys(found)) == {first.operation_key, *(one.operation_key for one in beside)}
    for delivery in found:
        answered(delivery)
    for one in (second, last):
        (head,) = claimed()
        assert head.key == one.operation_key
        answered(head)


def test_an_event_that_is_submitted_again_under_its_key_takes_no_second_place(tenant: str) -> None:
    ordered(tenant)
    wanted = events(tenant, idempotency_key="once")
    (first,) = submitted_in_silence(wanted)
    submitted_in_silence(wanted)
    (head,) = claimed()
    assert head.key == first.operation_key
    answered(head)
    assert claimed() == []


def test_a_replay_waits_for_no_line_however_long_it_is(tenant: str) -> None:
    """More than the endpoint's window stand in line before it, all due for longer, and the first of them is unknown."""
    ordered(tenant, in_flight=4, idempotent=False)
    (old,) = accepted(tenant)
    (head,) = claimed()
    answered(head)
    line = accepted(tenant, 10)
    (head,) = claimed()
    answered(head, None)
    assert line[0].status == "unknown"
    answer = task.open_run([task_id(old)], reason=RunReason.REPLAY)[task_id(old)]
    assert isinstance(answer, Applied)
    assert keys(claimed()) == [answer.row.operation_key]
    assert claimed() == []


@pytest.mark.parametrize("in_line_first", [True, False])
def test_where_not_all_may_go_what_waited_longest_goes_in_line_or_not(tenant: str, in_line_first: bool) -> None:
    """A window of one, and one that stands in line beside others that do not."""
    endpoint = ordered(tenant, in_flight=1)
    (first,) = accepted(tenant)
    endpoints.update(tenant, endpoint.endpoint_id, {"ordered": False})
    beside = accepted(tenant, 4)
    if not in_line_first:
        due_now(first)
    (head,) = claimed()
    assert head.key == (first if in_line_first else beside[0]).operation_key


def test_an_idle_dispatcher_is_not_kept_busy_by_a_line_that_waits(tenant: str) -> None:
    """Neither does the sweep ring for those who stand behind another, and are due only by the clock."""
    ordered(tenant)
    accepted(tenant, 20)

    def found() -> Found:
        return claiming.claim(Walk(), owner=RIVAL, batch=10, ttl_ms=TTL_MS)[1]

    def overdue() -> bool:
        return bool(DELIVERIES["dispatch.overdue"].rows(_KeyRow, {"age_ms": 0}))

    assert overdue(), "the first one is due"
    (head,) = claimed()
    assert found() is Found.NOTHING
    assert not overdue()
    not_sent(head)
    assert found() is Found.NOTHING
    assert not overdue()


def test_two_lines_and_an_endpoint_without_one_do_not_wait_for_each_other(tenant: str) -> None:
    ordered(tenant)
    ordered(tenant)
    deliveries.endpoint(tenant, "http://127.0.0.1:9/")
    every: list[Watched] = accepted(tenant, 3)
    found = claimed()
    assert len(found) == 1 + 1 + 3
    assert len({delivery.key for delivery in found}) == len(found)
    assert {one.operation_key for one in every} >= {delivery.key for delivery in found}
