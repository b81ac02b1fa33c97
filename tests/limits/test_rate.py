"""The rate limit of an endpoint: one bucket in the database for all dispatchers; what finds it empty waits unspent."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from deliveries import endpoints, reconcile
from deliveries.dispatch import claiming
from deliveries.dispatch.claiming import Found, Walk
from deliveries.health import Watch
from deliveries.models import Endpoint, EndpointState
from deliveries.queries import DELIVERIES
from ledger.models import Operation
from ledger.statements import in_transaction
from tests.limits.hands import accepted, ago, change, claimed, endpoint, make_due, settle, state
from tests.support.ledger_rows import OWNER, TTL_MS

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True)
class _Row:
    endpoint_id: uuid.UUID


def full(of: Endpoint) -> None:
    """The bucket has had all the time to fill."""
    if not EndpointState.objects.filter(pk=of.pk).exists():
        in_transaction(lambda: DELIVERIES["endpoint_state.born"].rows(_Row, {"endpoint_ids": [of.endpoint_id]}))
    change(of, allowance=0.0, refilled_at=ago(1_000_000))


def limited(rate: float, burst: int | None = None, **changes: object) -> Endpoint:
    to = endpoint(rate_per_second=rate, rate_burst=burst, in_flight=1000, **changes)
    accepted(to, 60)
    full(to)
    return to


def test_a_full_bucket_holds_the_burst_and_no_more() -> None:
    to = limited(10, 25)
    found = claimed()
    assert len(found) == 25
    assert claimed() == []
    assert {one.claim.attempts for one in found} == {1}
    assert state(to).allowance < 1


def test_without_a_burst_of_its_own_it_holds_what_one_second_allows() -> None:
    limited(7.5)
    assert len(claimed()) == 8


def test_it_refills_with_time() -> None:
    to = limited(10, 25)
    claimed()
    change(to, allowance=0.0, refilled_at=ago(0.95))
    assert len(claimed()) == 9
    change(to, allowance=0.4, refilled_at=ago(0.0))
    assert claimed() == []
    assert state(to).allowance >= 0.4, "what is not enough for one is kept"


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_rate_below_one_lets_one_go_at_a_time(rate: float) -> None:
    to = limited(rate)
    assert len(claimed()) == 1
    change(to, refilled_at=ago(0.9 / rate))
    assert claimed() == []
    change(to, allowance=0.0, refilled_at=ago(1.1 / rate))
    assert len(claimed()) == 1


def test_what_waits_is_prepared_spends_no_attempt_and_is_known_to_be_due() -> None:
    to = limited(5, 5)
    assert len(claimed()) == 5
    rest, found = claiming.claim(Walk(), owner=OWNER, batch=100, ttl_ms=TTL_MS)
    assert (rest, found) == ([], Found.PACED)
    waiting = Operation.objects.filter(run__task__endpoint_id=to.endpoint_id, status="prepared")
    assert waiting.count() == 55
    assert set(waiting.values_list("attempts", flat=True)) == {0}


def test_what_is_taken_out_is_what_is_picked_and_not_what_could_be() -> None:
    to = limited(100, 50)
    assert len(claimed(batch=20)) == 20
    assert 29.9 < state(to).allowance < 50
    assert len(claimed(batch=20)) == 20


def test_the_window_holds_beside_the_rate() -> None:
    to = endpoint(rate_per_second=100, rate_burst=50, in_flight=3)
    accepted(to, 20)
    full(to)
    assert len(claimed()) == 3
    assert claimed() == []


def test_a_breaker_that_is_not_closed_holds_beside_the_rate() -> None:
    to = limited(100, 50)
    settle(claimed(10), 503, watch=Watch())
    assert claimed() == []
    change(to, open_until=ago(1))
    assert len(claimed()) == 1


def test_a_changed_rate_holds_at_once() -> None:
    to = limited(10, 10)
    assert len(claimed()) == 10
    endpoints.update(to.tenant_id, to.endpoint_id, {"rate_per_second": 1000.0, "rate_burst": 1000})
    change(to, refilled_at=ago(0.02))
    assert len(claimed(batch=20)) == 20
    endpoints.update(to.tenant_id, to.endpoint_id, {"rate_per_second": 1.0, "rate_burst": 1})
    change(to, refilled_at=ago(100))
    assert len(claimed()) == 1
    endpoints.update(to.tenant_id, to.endpoint_id, {"rate_per_second": None, "rate_burst": None})
    assert len(claimed()) > 20


def test_others_are_served_while_it_waits() -> None:
    limited(1, 1)
    other = endpoint()
    accepted(other, 10)
    found = claimed()
    assert sorted({one.endpoint.endpoint_id == other.endpoint_id for one in found}) == [False, True]
    assert len(found) == 11


def test_it_is_not_called_overdue_by_the_reconciler() -> None:
    limited(1, 1)
    claimed()
    make_due()
    assert not reconcile.sweep().overdue
