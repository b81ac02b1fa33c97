"""What `explain` tells: in order of time, and without words for what is not known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from deliveries.api import schemas
from relay.story import tell

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
RUN = UUID(schemas.RUN)
DUE: dict[str, Any] = {"due_at": None, "created_at": BEGAN, "updated_at": BEGAN}


def at(seconds: int) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def lost() -> schemas.Attempt:
    """An attempt whose worker was lost, as the reconciler wrote it down after 31 seconds."""
    return schemas.Attempt(
        number=1, operation_id=schemas.OPERATION, endpoint_id=schemas.ENDPOINT, delivery_id=schemas.DELIVERY, epoch=1,
        owner="first", url="http://127.0.0.1:9/", started_at=at(1), ended_at=None, recorded_at=at(31),
        verdict="unknown", classification="worker_lost", http_status=None, response_headers=None, response_body=None,
        error="", evidence=None, late=False,
    )  # fmt: skip


def told(**lists: Any) -> list[str]:
    nothing: dict[str, Any] = {
        "runs": [], "operations": [], "attempt_records": [], "acknowledgements": [], "takeovers": [],
        "fenced_writes": [],
    }  # fmt: skip
    return tell(
        schemas.Delivery(
            id=schemas.DELIVERY,
            event_id=schemas.EVENT,
            event_type="invoice.paid",
            endpoint_id=schemas.ENDPOINT,
            status="unknown",
            run_id=RUN,
            operation_id=schemas.OPERATION,
            attempts=1,
            quarantined=False,
            in_line=False,
            holds_line=False,
            **DUE,
            **{**nothing, **lists},
        )
    )


def unknown(**changes: Any) -> schemas.Operation:
    known: dict[str, Any] = {
        "id": schemas.OPERATION, "status": "unknown", "revision": 2, "run_id": RUN, "delivery_id": schemas.DELIVERY,
        "event_id": schemas.EVENT, "event_type": "invoice.paid", "endpoint_id": schemas.ENDPOINT, "step_id": "deliver",
        "effect_version": 1,
        "tool": "webhook", "attempts": 1, "losses": 1, "quarantined": False, "holds_line": False,
        "dispatch_owner": None,
        "dispatch_until": None, "ambiguous": True, "unknown_since": at(31), "retry_until": None,
        "first_dispatched_at": at(1), "dispatched_at": at(1), "remote_id": None, "result": None, "resolutions": [],
        "acknowledgements": [], "attempt_records": [lost()], **DUE,
    }  # fmt: skip
    return schemas.Operation(**{**known, **changes})


def test_a_lost_worker_is_told_when_it_was_noticed_and_not_when_the_attempt_began() -> None:
    operation = unknown()
    takeover = schemas.Takeover(
        run_id=RUN, epoch=2, owner="second", previous_owner="first", previous_expired_at=at(30), taken_at=at(31)
    )
    lines = told(operations=[operation], takeovers=[takeover])
    order = [
        next(place for place, line in enumerate(lines) if words in line)
        for words in ("attempt 1 begun", "lease of first expired", "attempt 1: unknown (worker_lost)")
    ]
    assert order == sorted(order)
    assert lines[order[-1]].startswith("2030-01-01 00:00:31.000Z")


def test_of_a_refused_write_only_what_is_known_is_told() -> None:
    known: dict[str, Any] = {
        "statement": "run.finish", "reason": "lease_lost", "run_id": RUN, "operation_id": None, "owner": "first",
        "epoch": 1, "revision": 1, "seen_owner": None, "seen_epoch": 2, "seen_revision": None, "seen_status": None,
        "seen_expires_at": None, "evidence": None, "refused_at": at(2),
    }  # fmt: skip
    some, none = told(
        fenced_writes=[
            schemas.FencedWrite(**known),
            schemas.FencedWrite(**{**known, "epoch": None, "seen_epoch": None}),
        ]
    )[1:3]
    assert some.endswith("fenced out: run.finish by first under epoch 1 refused (lease_lost); at that moment: epoch 2")
    assert none.endswith("fenced out: run.finish by first refused (lease_lost)")


def test_a_quarantine_is_told_with_its_reason_and_what_may_be_done() -> None:
    last = told(operations=[unknown(attempts=3, losses=3, quarantined=True)])[-1]
    assert "its last 3 sends each lost their worker. It is not sent again by itself. Resolve it" in last
    assert "quarantined" not in told(operations=[unknown()])[-1]


def test_what_the_receiver_said_is_told_and_who_began() -> None:
    known: dict[str, Any] = {
        "operation_id": schemas.OPERATION, "source": "acknowledgement", "said": "processed", "remote_id": "in_7",
        "detail": "booked", "actor": "x", "http_status": None, "received_at": at(40),
    }  # fmt: skip
    asked = {**known, "source": "query", "said": "unknown", "remote_id": None, "detail": "", "http_status": 404}
    words = [schemas.Acknowledgement(**one) for one in (known, asked)]
    lines = told(operations=[unknown(acknowledgements=words)])
    assert any(line.endswith("40.000Z  the receiver said processed, its id in_7; booked") for line in lines)
    assert any(line.endswith("the receiver was asked, and said unknown (HTTP 404)") for line in lines)
