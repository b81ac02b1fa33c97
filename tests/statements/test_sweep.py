"""The sweep, over endpoints and events: what it schedules, withdraws, and leaves for a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deliveries import reconcile
from deliveries.dispatch import claiming
from deliveries.dispatch.claiming import Walk
from deliveries.endpoints import delete, update
from ledger.managers import operation
from ledger.managers.operation import Proof, Settlement
from ledger.models import Dispatch
from tests.support import deliveries
from tests.support import ledger_rows as rows
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.ledger_rows import HOUR_MS, OWNER, TTL_MS

pytestmark = pytest.mark.django_db

URL = "http://127.0.0.1:9/"


@pytest.fixture
def tenant(db: None) -> str:
    return deliveries.tenant()


def unknown(one: Watched, retry_ms: int | None) -> None:
    """Send it, and learn nothing."""
    (claim,), _ = operation.claim([one.operation_key], owner=OWNER, ttl_ms=TTL_MS)
    operation.settle([Settlement(claim, Proof.AMBIGUOUS, retry_ms, 72 * HOUR_MS)], owner=OWNER)
    assert one.status == "unknown"


def needs_a_person(one: Watched) -> bool:
    return Dispatch.objects.filter(operation_id=one.operation_key, due_at=None, until=None).exists()


@pytest.mark.parametrize("closing", ["disabled", "deleted"])
def test_an_unknown_operation_of_a_closed_endpoint_waits_for_a_person(tenant: str, closing: str) -> None:
    there, _ = endpoint(tenant, URL)
    (one,) = submitted(events(tenant))
    unknown(one, retry_ms=1000)
    assert not needs_a_person(one)
    if closing == "disabled":
        update(tenant, there.endpoint_id, {"enabled": False})
    else:
        delete(tenant, there.endpoint_id)
    assert reconcile.sweep().withdrawn == 1
    assert needs_a_person(one)
    assert one.operation.due_at is None
    assert reconcile.sweep().withdrawn == reconcile.sweep().scheduled == 0


def test_an_endpoint_that_is_enabled_again_gets_its_unknown_operations_again(tenant: str) -> None:
    there, _ = endpoint(tenant, URL)
    (one,) = submitted(events(tenant))
    unknown(one, retry_ms=1000)
    update(tenant, there.endpoint_id, {"enabled": False})
    reconcile.sweep()
    update(tenant, there.endpoint_id, {"enabled": True})
    assert reconcile.sweep().scheduled == 1
    assert not needs_a_person(one)


def test_the_age_of_a_delivery_counts_from_when_it_was_first_due(tenant: str) -> None:
    endpoint(tenant, URL)
    later = datetime.now(UTC) + timedelta(days=4)
    (one,) = submitted(events(tenant, deliver_at=later))
    # Four days pass.
    rows.change("ledger_operation", {"operation_key": one.operation_key}, created_at=rows.from_now(-96 * HOUR_MS))
    rows.change("deliveries_event", {"event_id": one.event_id}, deliver_at=rows.from_now(-1000))
    rows.change("ledger_operation", {"operation_key": one.operation_key}, due_at=rows.from_now(-1000))
    rows.change("ledger_dispatch", {"operation_key": one.operation_key}, due_at=rows.from_now(-1000))
    unknown(one, retry_ms=None)
    assert needs_a_person(one)
    assert reconcile.sweep().scheduled == 1


def test_an_event_dated_in_the_past_neither_jumps_the_queue_nor_breaks_its_endpoints_window(tenant: str) -> None:
    endpoint(tenant, URL, in_flight=2)
    claimed: list[Any] = []
    for hours in range(5):
        past = datetime.now(UTC) - timedelta(hours=1 + hours)
        submitted(events(tenant, 2, deliver_at=past))
        found, _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
        claimed += found
    assert len(claimed) == 2
    assert not Dispatch.objects.filter(due_at__lt=datetime.now(UTC) - timedelta(minutes=5)).exists()
