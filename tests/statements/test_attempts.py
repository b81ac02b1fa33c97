"""Attempts are written once; what a lost worker had seen may be added once, by that worker alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from deliveries.dispatch.attempts import AttemptRow, record
from tests.support import ledger_rows as rows

pytestmark = pytest.mark.django_db

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
LOST = AttemptRow(
    operation_key=7, number=1, epoch=3, owner="worker/a", url="http://127.0.0.1:9/", started_at=MOMENT, ended_at=None,
    verdict="unknown", classification="worker_lost", http_status=None, response_headers=None, response_body=None,
    error="", evidence=None,
)  # fmt: skip
SEEN = replace(
    LOST, ended_at=MOMENT, verdict="answered", classification="accepted", http_status=200,
    response_headers={"server": "x"}, response_body=b"\x00\xff", evidence={"peer": "127.0.0.1"},
)  # fmt: skip


def recorded() -> dict[str, Any]:
    (found,) = rows.rows("deliveries_attempt")
    return found


def test_an_attempt_is_kept_as_it_was_reported() -> None:
    record([SEEN])
    found = recorded()
    assert (found["http_status"], bytes(found["response_body"]), found["late"]) == (200, b"\x00\xff", False)


def test_what_a_lost_worker_had_seen_is_added_once_and_marked_late() -> None:
    record([LOST])
    record([SEEN])
    found = recorded()
    assert (found["classification"], found["http_status"], found["late"]) == ("accepted", 200, True)
    record([replace(SEEN, http_status=500, classification="server_error")])
    assert recorded() == found


@pytest.mark.parametrize("other", [{"epoch": 4}, {"owner": "worker/b"}])
def test_another_worker_adds_nothing_to_a_lost_workers_attempt(other: dict[str, Any]) -> None:
    record([LOST])
    before = recorded()
    record([replace(SEEN, **other)])
    assert recorded() == before


def test_a_lost_worker_is_not_written_over_what_it_did_report() -> None:
    record([SEEN])
    before = recorded()
    record([LOST])
    assert recorded() == before
