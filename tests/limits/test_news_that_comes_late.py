"""News that comes late: a dispatcher may keep an acceptance for half a minute, and its endpoint may have failed."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from deliveries import health
from deliveries.health import Watch
from deliveries.models import Endpoint
from deliveries.outcomes import ANSWERED, judge
from tests.limits.hands import accepted, ago, change, claimed, endpoint, seconds_until, settle, state

pytestmark = pytest.mark.django_db

HOUR, DAY = 3600, 86_400


def breaker(of: Endpoint) -> str:
    return health.state_of([of.endpoint_id])[of.endpoint_id].breaker


def failing(**columns: Any) -> Endpoint:
    """An endpoint of which it is on record that nothing was accepted for an hour, until ten seconds ago."""
    to = endpoint()
    accepted(to)
    settle(claimed(1), 503, watch=Watch())
    planted = {"failing_since": ago(HOUR), "failed_at": ago(10), "failing_count": 12, "warned_at": ago(60), **columns}
    change(to, **planted)
    return to


def answered(of: Endpoint, watch: Watch, seconds_ago: float, status: int = 200) -> None:
    """So it answered then, and nothing of that was written down yet."""
    watch.saw(
        of.endpoint_id, judge(ANSWERED, status, ()), error="" if status == 200 else f"The receiver answered {status}.",
        first=True, probing=False, at=time.monotonic() - seconds_ago,
    )  # fmt: skip


def seconds_since(moment: datetime | None) -> int:
    return round(-seconds_until(moment))


def test_an_acceptance_from_before_the_failures_neither_closes_a_breaker_that_is_half_open_nor_ends_the_failing() -> (
    None
):
    to, kept = endpoint(), Watch()
    accepted(to, 40)
    found = claimed(11)
    settle(found[:1], 200, watch=kept, written=False)
    settle(found[1:], 503, watch=Watch())
    change(to, opens=3, open_until=ago(1), failing_count=12, warned_at=ago(0))
    before = state(to)
    kept.write(at_once=True)
    now = state(to)
    assert (breaker(to), now.opens) == ("half_open", 3)
    assert (now.failing_since, now.failing_count, now.warned_at) == (
        before.failing_since, 12, before.warned_at,
    )  # fmt: skip
    assert before.failed_at is not None
    assert now.accepted_at is not None
    assert now.accepted_at < before.failed_at, "when it accepted, and not when that was written down"
    assert len(claimed()) == 1


@pytest.mark.parametrize("status", [503, None, 200, 404])
def test_what_was_in_flight_when_it_opened_is_no_try_however_late_it_ends(status: int | None) -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 20)
    found = claimed(14)
    settle(found[:10], 503, watch=watch)
    change(to, open_until=ago(1))
    settle(found[10:], status, watch=watch)
    watch.write(last=True)
    assert (breaker(to), state(to).opens) == ("half_open", 1)
    (probe,) = claimed()
    settle([probe], 200, watch=watch)
    assert breaker(to) == "closed"


@pytest.mark.parametrize(("of_the_try", "of_the_others", "then"), [(200, 503, "closed"), (503, 200, "open")])
def test_only_the_try_counts_where_both_are_written_down_together(
    of_the_try: int, of_the_others: int, then: str
) -> None:
    to, watch = endpoint(), Watch()
    accepted(to, 20)
    found = claimed(14)
    settle(found[:10], 503, watch=Watch())
    change(to, open_until=ago(1))
    settle(found[10:12], of_the_others, watch=watch, written=False)
    settle(found[12:], 404, watch=Watch())  # they are in flight no more: there is room for a try
    (probe,) = claimed()
    settle([probe], of_the_try, watch=watch)
    assert breaker(to) == then


def test_an_acceptance_after_the_failures_ends_them_also_where_it_is_told_late() -> None:
    to, watch = failing(failed_at=ago(30)), Watch()
    answered(to, watch, 20)
    watch.write(at_once=True)
    now = state(to)
    assert (now.failing_since, now.failing_count, now.warned_at) == (None, 0, None)
    assert seconds_since(now.accepted_at) == 20


def test_one_that_accepts_now_and_then_is_not_failing_since_before_it_did() -> None:
    """Failures are written down at once and acceptances late: a failure is always the last that is known."""
    to, watch = failing(failing_since=ago(5 * DAY + HOUR)), Watch()
    answered(to, watch, 20)
    watch.write(at_once=True)
    now = state(to)
    assert (seconds_since(now.failing_since), now.failing_count, now.warned_at) == (20, 12, None)
    assert health.disable_failing() == 0


def test_one_that_is_not_failing_does_not_begin_to_with_an_old_acceptance() -> None:
    to, watch = failing(failing_since=None, failing_count=0), Watch()
    answered(to, watch, 20)
    watch.write(at_once=True)
    assert (state(to).failing_since, state(to).failing_count) == (None, 0)


def test_a_failure_that_is_told_with_an_old_acceptance_is_added_to_the_others() -> None:
    to, watch = failing(failing_since=ago(15)), Watch()
    answered(to, watch, 20)
    answered(to, watch, 0, 404)
    watch.write(at_once=True)
    now = state(to)
    assert (seconds_since(now.failing_since), now.failing_count) == (15, 13)
    assert now.warned_at is not None


def test_an_older_acceptance_does_not_take_the_place_of_a_later_one() -> None:
    to, watch = failing(accepted_at=ago(5)), Watch()
    answered(to, watch, 20)
    watch.write(at_once=True)
    assert seconds_since(state(to).accepted_at) == 5
