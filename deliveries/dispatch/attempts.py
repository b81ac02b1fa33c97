"""Attempts: what a dispatcher reports of one, and how it is recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deliveries.dispatch.claiming import Delivery
from deliveries.outcomes import Judgement
from deliveries.queries import DELIVERIES
from deliveries.transport.base import Outcome


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as it is recorded; the columns of the table."""

    operation_key: int
    number: int
    epoch: int
    owner: str
    url: str
    started_at: datetime
    ended_at: datetime | None
    verdict: str
    classification: str
    http_status: int | None
    response_headers: dict[str, str] | None
    response_body: bytes | None
    error: str
    evidence: dict[str, Any] | None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a dispatcher has to say about a delivery: an outcome, or (None) that it was never sent.

    `pause_s`: for so long its endpoint cannot be sent to, for want of an access token or of a secret that opens.
    """

    delivery: Delivery
    outcome: Outcome | None
    ended_at: float
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Recorded:
    attempt_id: int


@dataclass(frozen=True, slots=True)
class _Written:
    operation_key: int
    number: int


def record(rows: Sequence[AttemptRow]) -> None:
    """Write attempts. One that is on record already is left alone, but for what a lost worker could not say."""
    DELIVERIES["attempt.record"].rows(
        _Recorded,
        {
            "operation_keys": [row.operation_key for row in rows],
            "numbers": [row.number for row in rows],
            "epochs": [row.epoch for row in rows],
            "owners": [row.owner for row in rows],
            "urls": [row.url for row in rows],
            "started_ats": [row.started_at for row in rows],
            "ended_ats": [row.ended_at for row in rows],
            "verdicts": [row.verdict for row in rows],
            "classifications": [row.classification for row in rows],
            "http_statuses": [row.http_status for row in rows],
            "response_headers": [_json(row.response_headers) for row in rows],
            "response_bodies": [row.response_body for row in rows],
            "errors": [row.error for row in rows],
            "evidences": [_json(row.evidence) for row in rows],
            "lates": [row.late for row in rows],
        },
    )


def already_written(reports: Sequence[Report], *, owner: str) -> set[tuple[int, int]]:
    """Of these reports, the (operation key, attempt number) of those that were settled: the read-back after a lost
    COMMIT. Limit: what was given back unsent leaves no attempt, and is not found."""
    rows = DELIVERIES["attempt.written"].rows(
        _Written,
        {
            "operation_keys": [report.delivery.key for report in reports],
            "numbers": [report.delivery.claim.attempts for report in reports],
            "owner": owner,
        },
    )
    return {(row.operation_key, row.number) for row in rows}


def row_of(report: Report, outcome: Outcome, judgement: Judgement, owner: str, *, late: bool) -> AttemptRow:
    """The attempt that was reported, as it is recorded. `late`: its worker had lost the lease."""
    delivery = report.delivery
    started = delivery.sent_at if delivery.sent_at is not None else report.ended_at
    return AttemptRow(
        operation_key=delivery.key,
        number=delivery.claim.attempts,
        epoch=delivery.claim.epoch,
        owner=owner,
        url=delivery.endpoint.url,
        started_at=delivery.moment(started),
        ended_at=delivery.moment(report.ended_at),
        verdict=outcome.verdict,
        classification=judgement.classification,
        http_status=outcome.http_status,
        response_headers=headers_of(outcome) or None,
        response_body=outcome.body or None,
        error=storable(outcome.error),
        evidence=evidence_of(report, outcome),
        late=late,
    )


def evidence_of(report: Report, outcome: Outcome) -> dict[str, Any]:
    """What the wire showed, and which request it belongs to: a late acceptance counts only for the same one."""
    return {**outcome.evidence.as_json(), "request_digest": report.delivery.claim.request_digest.hex()}


def headers_of(outcome: Outcome) -> dict[str, str]:
    """The answer's headers, in lower case; those that came more than once with commas between."""
    headers: dict[str, str] = {}
    for name, value in outcome.headers:
        key, text = storable(name.lower()), storable(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def storable(value: str) -> str:
    """`value` without what PostgreSQL's text and jsonb cannot hold: NUL, and lone surrogates."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)
