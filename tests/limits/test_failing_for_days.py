"""An endpoint that has accepted nothing for days is disabled, and that is said half way there."""

from __future__ import annotations

from typing import Any

import pytest

from deliveries import endpoints, health, reconcile
from deliveries.health import Watch
from deliveries.models import Endpoint
from deliveries.queries import DELIVERIES
from tests.limits.hands import accepted, ago, change, claimed, endpoint, make_due, seconds_until, settle, state

pytestmark = pytest.mark.django_db

HOUR, DAY = 3600, 86_400


def failing(**columns: Any) -> Endpoint:
    """An endpoint that has failed for five days and an hour, every try of twelve deliveries."""
    to = endpoint()
    accepted(to)
    settle(claimed(1), 503, watch=Watch())
    change(
        to, **{"failing_since": ago(5 * DAY + HOUR), "failed_at": ago(60), "failing_count": 12, "opens": 0, **columns}
    )  # fmt: skip
    return to


def now(of: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=of.pk)


def test_it_is_disabled_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    to = failing()
    assert reconcile.sweep().disabled == 1
    assert not now(to).enabled
    assert now(to).disabled_reason.startswith("Nothing was accepted since ")
    assert now(to).disabled_reason.endswith(": 12 deliveries failed.")
    assert now(to).disabled_reason in caplog.text
    assert reconcile.sweep().disabled == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"failing_since": ago(5 * DAY - HOUR)},
        {"failing_count": 9},
        {"failed_at": ago(5 * DAY - 10 * HOUR)},
        {"failing_since": None},
    ],
    ids=["too short", "too few", "in too short a time", "well"],
)
def test_it_stays_enabled(columns: dict[str, Any]) -> None:
    to = failing(**columns)
    assert health.disable_failing() == 0
    assert now(to).enabled


def test_half_way_there_it_is_said_once_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    to = failing(failing_since=ago(2.6 * DAY))
    health.disable_failing()
    assert caplog.text.count("will be disabled at") == 1
    shown = health.state_of([to.endpoint_id])[to.endpoint_id]
    assert 2.3 * DAY < seconds_until(shown.disables_at) < 2.5 * DAY
    caplog.clear()
    health.disable_failing()
    assert caplog.text == ""
    assert state(to).warned_at is not None


def test_before_that_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    failing(failing_since=ago(2.4 * DAY))
    health.disable_failing()
    assert caplog.text == ""


def test_one_acceptance_ends_it() -> None:
    to, watch = failing(warned_at=ago(60)), Watch()
    accepted(to)
    settle(claimed(1), 200, watch=watch)
    assert (state(to).failing_since, state(to).failing_count, state(to).warned_at) == (None, 0, None)
    assert health.disable_failing() == 0


def test_a_failure_after_it_begins_anew() -> None:
    to, watch = failing(), Watch()
    accepted(to, 3)
    first, second, third = claimed(3)
    for status, delivery in ((503, first), (200, second), (404, third)):
        settle([delivery], status, watch=watch)
    assert seconds_until(state(to).failing_since) > -60
    assert state(to).failing_count == 1


def test_deliveries_are_counted_and_not_their_tries() -> None:
    to, watch = endpoint(), Watch()
    accepted(to)
    for _ in range(3):
        settle(claimed(1), 404, watch=watch)
        make_due()
    assert state(to).failing_count == 1


def test_who_enables_it_again_begins_anew() -> None:
    to = failing()
    health.disable_failing()
    endpoints.update(to.tenant_id, to.endpoint_id, {"enabled": True})
    assert now(to).disabled_reason == ""
    assert (state(to).failing_since, state(to).failing_count) == (None, 0)
    assert health.disable_failing() == 0
    assert now(to).enabled


def test_one_that_came_to_accept_at_the_last_moment_is_not_disabled() -> None:
    to = failing()
    found = DELIVERIES["endpoint_state.failing"].rows(
        health._Failing, {"after_ms": 5 * DAY * 1000, "span_ms": 12 * HOUR * 1000, "deliveries": 10, "batch": 10}
    )
    accepted(to)
    settle(claimed(1), 200, watch=Watch())
    assert [health._disable(one) for one in found] == [0]
    assert now(to).enabled
