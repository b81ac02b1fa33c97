"""What a person is told about a delivery: derived from its run and operation, never stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString

from deliveries.models import Attempt, Endpoint, Verdict
from deliveries.reconcile import quarantined
from ledger.admin.text import badge, outside, span
from ledger.models import Operation, Run
from ledger.states import OperationStatus, RunStatus

LABELS = {
    "pending": "Pending",
    "retrying": "Retrying",
    "sending": "Sending",
    "unknown": "Unknown",
    "quarantined": "Quarantined",
    "delivered": "Delivered",
    "failed": "Failed",
    "cancelled": "Cancelled",
}

_BY_OPERATION = {
    OperationStatus.SUCCEEDED: "delivered",
    OperationStatus.FAILED_FINAL: "failed",
    OperationStatus.CANCELLED: "cancelled",
    OperationStatus.UNKNOWN: "unknown",
    OperationStatus.DISPATCHING: "sending",
}

_BY_RUN = {RunStatus.SUCCEEDED: "delivered", RunStatus.FAILED: "failed", RunStatus.CANCELLED: "cancelled"}


def status_of(run: Run | None, operation: Operation | None) -> str:
    """One of `LABELS`. The operation speaks first: a cancelled run does not make a send in flight unsent."""
    if operation is None:
        return _BY_RUN.get(RunStatus(run.status), "pending") if run else "pending"
    if quarantined(operation):
        return "quarantined"
    known = _BY_OPERATION.get(OperationStatus(operation.status))
    if known:
        return known
    return "retrying" if operation.attempts else "pending"


def status_badge(status: str) -> SafeString:
    """The status in colour and in words."""
    return badge(status, "bad" if status == "quarantined" else None, LABELS.get(status, status))


def operation_badges(operation: Operation) -> tuple[SafeString, ...]:
    """What is known about an operation, and whether it is quarantined."""
    known = badge(operation.status, None, operation.get_status_display())
    return (known, status_badge("quarantined")) if quarantined(operation) else (known,)


def quarantine(operation: Operation) -> str:
    """Why a quarantined operation is not sent any more, and what may be done; empty for any other."""
    if not quarantined(operation):
        return ""
    lost = f"Its last {operation.losses} sends each lost their" if operation.losses > 1 else "Its last send lost its"
    return f"{lost} worker. It is not sent again by itself. Resolve it, or send it again knowingly."


def latest(operations: Iterable[Operation]) -> dict[uuid.UUID, Operation]:
    """The newest operation of each run."""
    return {operation.run_id: operation for operation in sorted(operations, key=lambda o: o.operation_key)}


def promise(endpoint: Endpoint | None) -> str:
    """What the endpoint promises, in a sentence: what may safely be done about an unknown operation rests on it."""
    if endpoint is None:
        return "The endpoint is gone, and with it what it promised."
    drops = f"drops duplicates by id for {endpoint.window_hours} hours" if endpoint.idempotent else ""
    asks = "answers what became of an operation" if endpoint.query_url else ""
    said = " and ".join(filter(None, (drops, asks)))
    return f"It {said}." if said else "It promises nothing: sent again, it may act again."


def window(endpoint: Endpoint | None, operation: Operation, now: datetime) -> str:
    """Whether a send under the same id would still be recognised as a duplicate."""
    if endpoint is None or not endpoint.idempotent:
        return "No: it does not drop duplicates."
    if operation.first_dispatched_at is None:
        return "Nothing was sent yet."
    ends = operation.first_dispatched_at + timedelta(hours=endpoint.window_hours)
    if ends <= now:
        return f"No longer: its window ended {span(now - ends)} ago."
    return f"Yes, for another {span(ends - now)}."


def verdict_badge(attempt: Attempt) -> SafeString:
    """What the wire proved."""
    tones = {Verdict.ANSWERED: "plain", Verdict.NOT_SENT: "busy", Verdict.UNKNOWN: "warn"}
    return badge(attempt.verdict, tones.get(Verdict(attempt.verdict)), Verdict(attempt.verdict).label)


def said(attempt: Attempt | None) -> str | SafeString:
    """An attempt in half a line: status code or error."""
    if attempt is None:
        return "No attempt was recorded."
    parts = []
    if attempt.http_status is not None:
        parts.append(f"HTTP {attempt.http_status}")
    if attempt.error:
        parts.append(attempt.error)
    elif attempt.ended_at is None:
        parts.append("its worker was lost before it could say")
    return format_html(
        "#{} {}: {}", attempt.number, outside(attempt.classification, 60), outside(", ".join(parts), 140)
    )
