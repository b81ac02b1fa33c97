"""`/v1/stats`: what is due, on the wire and unknown, and how the endpoints are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deliveries.api import stats
from ledger.managers.operation import Proof
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db


def counted(by: Caller) -> dict[str, Any]:
    answer = by.get("/v1/stats")
    assert answer.status_code == 200
    shown: dict[str, Any] = answer.json()
    return shown


def test_a_tenant_that_has_nothing_has_zeros(mine: Caller) -> None:
    shown = counted(mine)
    assert abs(datetime.fromisoformat(shown.pop("at")) - datetime.now(UTC)) < timedelta(minutes=1)
    assert {name: value for name, value in shown.items() if value} == {}


def test_each_delivery_is_counted_as_what_it_is(mine: Caller) -> None:
    rows.endpoint(mine)
    ids = [rows.deliveries_of(mine, rows.event(mine))[0]["operation_id"] for _ in range(5)]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    rows.event(mine, deliver_at=later)
    before = counted(mine)
    assert (before["unsettled"], before["due"], before["in_flight"], before["unknown"]) == (6, 5, 0, 0)
    assert datetime.fromisoformat(before["oldest_due_at"]) <= datetime.fromisoformat(before["at"])
    rows.claim(ids[0])
    rows.settle(rows.claim(ids[1]), Proof.ACCEPTED)
    rows.settle(rows.claim(ids[2]), Proof.FINAL)
    rows.settle(rows.claim(ids[3]), Proof.AMBIGUOUS)
    rows.settle(rows.claim(ids[4]), Proof.AMBIGUOUS, retry_ms=3_600_000, window_ms=7_200_000)
    after = counted(mine)
    assert (after["unsettled"], after["due"], after["in_flight"]) == (4, 0, 1)
    assert (after["unknown"], after["needs_a_person"]) == (2, 1)
    assert after["oldest_unknown_since"] is not None
    assert after["more"] is False


def test_endpoints_are_counted_as_they_are(mine: Caller, theirs: Caller) -> None:
    gone, off = rows.endpoint(mine), rows.endpoint(mine)
    rows.endpoint(mine)
    rows.endpoint(theirs)
    mine("DELETE", f"/v1/endpoints/{gone}")
    mine.post(f"/v1/endpoints/{off}/disable")
    shown = counted(mine)
    assert (shown["endpoints"], shown["enabled"], shown["failing"], shown["breakers_open"]) == (2, 1, 0, 0)


def test_what_is_beyond_counting_is_said_to_be_more(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.endpoint(mine)
    for _ in range(3):
        rows.event(mine)
    monkeypatch.setattr(stats, "MOST", 2)
    shown = counted(mine)
    assert (shown["more"], shown["unsettled"]) == (True, 3)
