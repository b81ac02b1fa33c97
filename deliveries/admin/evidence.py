"""Attempts, acknowledgements, takeovers, fenced writes and resolutions as a timeline, and as tables of evidence."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from deliveries.admin.status import verdict_badge
from deliveries.models import Acknowledgement, Attempt, Said, Source, Verdict
from ledger.admin.page import Entry, Value
from ledger.admin.records import REASONS, dash
from ledger.admin.text import ago, badge, block, code, outside, pretty, span, when
from ledger.models import FencedWrite, Lease, Operation, Resolution, Run, Takeover
from ledger.states import Decision

SHOWN = 200
"""How many records of one kind a page shows."""


def headers(value: Any) -> Value:
    """A response's header block. It is kept as pairs or as an object; anything else is shown as it is."""
    if not value:
        return "—"
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        pairs = [(pair[0], pair[1]) for pair in value]
    else:
        return pretty(value)
    return block("\n".join(f"{name}: {text}" for name, text in pairs), 8192)


def took(attempt: Attempt) -> str:
    """How long the attempt lasted."""
    return span(attempt.ended_at - attempt.started_at) if attempt.ended_at else "its worker was lost"


def attempt_facts(attempt: Attempt) -> list[tuple[str, Value]]:
    """Everything about an attempt that fits a line."""
    facts: list[tuple[str, Value]] = [
        ("Verdict", format_html("{} {}", verdict_badge(attempt), code(attempt.classification))),
        ("HTTP status", dash(attempt.http_status)),
        ("URL", outside(attempt.url)),
        ("Epoch", attempt.epoch),
        ("Owner", code(attempt.owner)),
        ("Started", when(attempt.started_at)),
        ("Ended", when(attempt.ended_at, "Never: its worker was lost before it could say")),
        ("Took", took(attempt)),
    ]
    if attempt.error:
        facts.insert(2, ("Error", outside(attempt.error, 1000)))
    if attempt.late:
        facts.append(("Late", "It was reported after its worker had lost the lease"))
    return facts


def attempt_blocks(attempt: Attempt) -> list[tuple[str, Value]]:
    """What the receiver answered and what the wire showed."""
    blocks: list[tuple[str, Value]] = []
    if attempt.response_headers:
        blocks.append(("Response headers", headers(attempt.response_headers)))
    if attempt.response_body is not None:
        blocks.append(("Response body", block(attempt.response_body)))
    if attempt.evidence:
        blocks.append(("Evidence from the wire", pretty(attempt.evidence)))
    return blocks


def of_attempt(attempt: Attempt) -> Entry:
    """An attempt in the timeline."""
    tone = "warn" if attempt.verdict == Verdict.UNKNOWN else "plain"
    if attempt.http_status is not None:
        tone = "good" if 200 <= attempt.http_status < 300 else "bad"
    title = format_html("Attempt {}", attempt.number)
    if attempt.http_status is not None:
        title = format_html("{} · HTTP {}", title, attempt.http_status)
    title = format_html("{} {}", title, verdict_badge(attempt))
    return Entry(
        attempt.started_at, when(attempt.started_at), title, tone, attempt_facts(attempt), attempt_blocks(attempt), 3
    )


def of_acknowledgement(row: Acknowledgement) -> Entry:
    """A receiver's word in the timeline."""
    facts: list[tuple[str, Value]] = [("How", Source(row.source).label)]
    if row.covers == 0:
        facts.append(("Limit", "Nothing of it can have been taken when this was said: it moves nothing"))
    facts += [("By", outside(row.actor)), ("Remote id", outside(row.remote_id)), ("Detail", outside(row.detail, 4000))]
    if row.http_status is not None:
        facts.append(("HTTP status", row.http_status))
    tone = {Said.PROCESSED: "good", Said.REJECTED: "bad"}.get(Said(row.said), "plain")
    title = f"The receiver said: {Said(row.said).label}"
    return Entry(row.received_at, when(row.received_at), title, tone, facts, order=4)


def of_run(run: Run) -> Entry:
    """The start of an execution."""
    title = format_html("{} as run {}", run.get_reason_display(), code(run.run_id))
    return Entry(run.created_at, when(run.created_at), title, "plain", order=0, anchor=f"run-{run.run_id}")


def of_operation(operation: Operation, name: str, link: Value, run_made: datetime) -> Entry:
    """The moment an effect was planned: not before its run, though one statement made both and read the clock twice."""
    made = max(operation.created_at, run_made)
    facts = (("Operation", link), ("Digest", code(bytes(operation.request_digest).hex())))
    return Entry(made, when(made), f"Operation planned: {name}", "plain", facts, order=1)


def of_lease(lease: Lease, now: datetime) -> Entry | None:
    """The term that is running now."""
    if lease.owner is None or lease.acquired_at is None:
        return None
    late = lease.expires_at <= now
    facts = (
        ("Owner", code(lease.owner)),
        ("Expires", format_html("{} ({})", when(lease.expires_at), ago(lease.expires_at, now))),
    )
    title = format_html(
        "Lease of epoch {} {}", lease.epoch, badge("overdue" if late else "held", "warn" if late else "busy")
    )
    return Entry(lease.acquired_at, when(lease.acquired_at), title, "warn" if late else "busy", facts, order=2)


def of_takeover(row: Takeover) -> Entry:
    """A change of owner by expiry."""
    facts = (
        ("New owner", code(row.owner)),
        ("Previous owner", code(row.previous_owner)),
        ("Its lease expired", when(row.previous_expired_at)),
        ("Nobody held it for", span(row.taken_at - row.previous_expired_at)),
    )
    return Entry(row.taken_at, when(row.taken_at), f"Taken over under epoch {row.epoch}", "warn", facts, order=2)


def of_fenced_write(row: FencedWrite) -> Entry:
    """A refused write."""
    facts = (
        ("Reason", REASONS.get(row.reason, row.reason)),
        ("Who tried", code(row.owner)),
        ("Presented", f"epoch {dash(row.epoch)}, revision {dash(row.revision)}"),
        (
            "Current",
            format_html(
                "{}, epoch {}, revision {}", code(row.seen_owner), dash(row.seen_epoch), dash(row.seen_revision)
            ),
        ),
    )
    blocks = [("What it had learned", pretty(row.evidence))] if row.evidence else []
    title = format_html("Fenced out: {}", code(row.statement))
    return Entry(row.refused_at, when(row.refused_at), title, "warn", facts, blocks, 4)


def of_resolution(row: Resolution) -> Entry:
    """A person's decision."""
    facts = (("By", outside(row.actor)), ("Reason", outside(row.reason, 4000)), ("Revision seen", row.revision_seen))
    moved = row.decision == Decision.MOVED_ASIDE
    title = "Moved aside out of its line" if moved else f"Resolved: {Decision(row.decision).label}"
    tone = {"succeeded": "good", "failed": "bad"}.get(row.decision, "busy")
    return Entry(row.decided_at, when(row.decided_at), title, tone, facts, order=5)


def of_run_end(run: Run) -> Entry:
    """How an execution ended."""
    tone = {"succeeded": "good", "failed": "bad"}.get(run.status, "plain")
    return Entry(run.updated_at, when(run.updated_at), f"Run {run.get_status_display().lower()}", tone, order=6)


def entries(
    runs: Sequence[Run], operations: Sequence[Operation], names: dict[int, tuple[str, Value]], now: datetime
) -> list[Entry]:
    """Everything that happened to these runs and operations: six queries, `SHOWN` rows of a kind at most."""
    run_ids: list[uuid.UUID] = [run.run_id for run in runs]
    keys = [operation.operation_key for operation in operations]
    found: list[Entry] = []
    for run in runs:
        found.append(of_run(run))
        term = of_lease(run.lease, now)
        if term:
            found.append(term)
        if run.status in ("succeeded", "failed", "cancelled"):
            found.append(of_run_end(run))
    made = {run.run_id: run.created_at for run in runs}
    found += [of_operation(o, *names[o.operation_key], made[o.run_id]) for o in operations]
    found += [
        of_attempt(a)
        for a in Attempt.objects.filter(operation_key__in=keys).order_by("operation_key", "number")[:SHOWN]
    ]
    found += [of_acknowledgement(a) for a in Acknowledgement.objects.filter(operation_key__in=keys)[:SHOWN]]
    found += [of_takeover(t) for t in Takeover.objects.filter(run_id__in=run_ids)[:SHOWN]]
    found += [of_fenced_write(f) for f in FencedWrite.objects.filter(run_id__in=run_ids)[:SHOWN]]
    found += [of_resolution(r) for r in Resolution.objects.filter(operation_id__in=keys)[:SHOWN]]
    return found


def attempt_summary(attempts: Sequence[Attempt]) -> list[list[Value]]:
    """Attempts as rows of a table."""
    return [
        [
            a.number,
            verdict_badge(a),
            code(a.classification),
            dash(a.http_status),
            outside(a.error, 160),
            a.epoch,
            code(a.owner),
            when(a.started_at),
            took(a),
        ]
        for a in attempts
    ]


def acknowledgement_summary(found: Sequence[Acknowledgement]) -> list[list[Value]]:
    """Receivers' words as rows of a table, newest first."""
    tones = {Said.PROCESSED: "good", Said.REJECTED: "bad"}
    return [
        [
            when(a.received_at),
            badge(a.said, tones.get(Said(a.said), "plain"), Said(a.said).label),
            Source(a.source).label,
            outside(a.remote_id, 80),
            outside(a.detail, 160),
            outside(a.actor, 80),
        ]
        for a in found
    ]


WORD_HEADERS = ("Received", "What", "How", "Remote id", "Detail", "By")
SUMMARY_HEADERS = ("No.", "Verdict", "Classification", "HTTP", "Error", "Epoch", "Owner", "Started", "Took")


def joined(parts: Sequence[Value]) -> SafeString:
    """Short values one under another."""
    rows = format_html_join("", '<div class="relay-stack">{}</div>', ((part,) for part in parts))
    return format_html("<div>{}</div>", rows)
