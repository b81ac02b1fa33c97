"""`relay show`: one thing by its id, whatever kind it is."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
import typer

from relay.cli.output import Output
from relay.cli.session import Session, command
from relay.cli.text import clean, moment
from relay.client.configuration import Endpoint, Job, Key
from relay.client.results import Attempt, Delivery, DeliveryItem, Event, Operation

_HEX = "[0-9a-f]{32}"
SHOWN_BODY = 500


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    command(app, "show")(show)


def show(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of an event, delivery, operation, endpoint, job or key.")],
) -> None:
    """Show one thing and what became of it."""
    relay, out = session.relay, session.out
    if re.fullmatch(f"dlv_{_HEX}", id):
        delivery = relay.delivery(id)
        out.document(delivery) if session.json else show_delivery(out, delivery)
    elif re.fullmatch(f"ep_{_HEX}", id):
        endpoint = relay.endpoints.get(id)
        out.document(endpoint) if session.json else show_endpoint(out, endpoint)
    elif re.fullmatch(f"job_{_HEX}", id):
        job = relay.job(id)
        out.document(job) if session.json else show_job(out, job)
    elif re.fullmatch(f"key_{_HEX}", id):
        key = relay.keys.get(id)
        out.document(key) if session.json else show_key(out, key)
    elif "/" in id:
        operation = relay.operation(id)
        out.document(operation) if session.json else show_operation(out, operation)
    else:
        event = relay.event(id)
        deliveries = list(relay.event_deliveries(id))
        if session.json:
            out.document({**event_fields(event), "delivery_items": deliveries})
        else:
            show_event(out, event, deliveries)


def event_fields(event: Event) -> dict[str, Any]:
    """The event as the API shows it, its data byte for byte."""
    fields = {name: value for name, value in asdict(event).items() if name != "payload"}
    return {**fields, "data": msgspec.Raw(event.payload)}


def show_event(out: Output, event: Event, deliveries: list[DeliveryItem]) -> None:
    """An event with its deliveries."""
    out.fields(
        [
            ("event", event.id),
            ("type", event.type),
            ("accepted", event.created_at),
            ("source", event.source),
            ("deliver at", event.deliver_at),
            ("metadata", event.metadata),
            ("headers", event.headers),
            ("expunged", event.expunged_at),
            ("data", event.payload.decode("utf-8", "replace")),
        ]
    )
    out.heading("Deliveries")
    delivery_table(out, deliveries, empty="No endpoint wanted it.")


def delivery_table(out: Output, rows: list[DeliveryItem], *, empty: str) -> None:
    """Deliveries, one a line."""
    out.table(
        ("delivery", "status", "type", "endpoint", "tries", "changed"),
        [(row.id, row.status, row.event_type, row.endpoint_id, row.attempts, moment(row.updated_at)) for row in rows],
        empty=empty,
    )


def show_delivery(out: Output, delivery: Delivery) -> None:
    """A delivery's whole life."""
    out.fields(
        [
            ("delivery", delivery.id),
            ("status", delivery.status),
            ("event", f"{delivery.event_id}  {delivery.event_type}"),
            ("endpoint", delivery.endpoint_id),
            ("operation", delivery.operation_id),
            ("due", delivery.due_at),
            ("line", "it is the first, and the others wait for it" if delivery.holds_line else None),
            ("quarantined", "its last sends each lost their worker" if delivery.quarantined else None),
            ("accepted", delivery.created_at),
            ("changed", delivery.updated_at),
        ]
    )
    out.heading("What happened")
    happened(out, delivery)


def happened(out: Output, of: Delivery | Operation) -> None:
    """Attempts, words, decisions and takeovers in the order of their times."""
    operations = of.operations if isinstance(of, Delivery) else [of]
    lines = [(one.started_at, attempt_line(one)) for one in of.attempt_records]
    for word in of.acknowledgements:
        who = "the receiver, asked, says" if word.source == "query" else "the receiver says"
        lines.append((word.received_at, f"{who} {word.said}{_after(word.detail)}"))
    for operation in operations:
        for one in operation.resolutions:
            lines.append((one.decided_at, f"{one.actor} decided {one.decision}: {one.reason}"))  # noqa: PERF401
    if isinstance(of, Delivery):
        for run in of.runs:
            lines.append((run.created_at, f"a run begins ({run.reason})"))  # noqa: PERF401
        for taken in of.takeovers:
            lines.append((taken.taken_at, f"{taken.owner} takes over from {taken.previous_owner}"))  # noqa: PERF401
        for write in of.fenced_writes:
            lines.append((write.refused_at, f"{write.statement} of {write.owner} is refused: {write.reason}"))  # noqa: PERF401
    for time, line in sorted(lines, key=lambda line: line[0]):
        out.say(f"{moment(time)}  {line}")


def attempt_line(one: Attempt) -> str:
    """One attempt, in a line."""
    answer = f"HTTP {one.http_status}" if one.http_status is not None else (one.error or "no answer")
    took = "" if one.ended_at is None else f" after {(one.ended_at - one.started_at).total_seconds() * 1000:.0f} ms"
    body = "" if not one.response_body or one.classification == "accepted" else _after(one.response_body)
    return f"attempt {one.number}: {one.classification}, {answer}{took}{body}"


def _after(text: str) -> str:
    flat = " ".join(clean(text[:SHOWN_BODY]).split())
    return f": {flat}" if flat else ""


def show_operation(out: Output, operation: Operation) -> None:
    """An operation with what is known about it."""
    out.fields(
        [
            ("operation", operation.id),
            ("status", operation.status),
            ("revision", operation.revision),
            ("delivery", operation.delivery_id),
            ("event", f"{operation.event_id}  {operation.event_type}"),
            ("endpoint", operation.endpoint_id),
            ("attempts", operation.attempts),
            ("may be taken", "some attempt may have been taken" if operation.ambiguous else None),
            ("unknown since", operation.unknown_since),
            ("due", operation.due_at),
            ("remote id", operation.remote_id),
        ]
    )
    out.heading("What happened")
    happened(out, operation)


def show_endpoint(out: Output, endpoint: Endpoint) -> None:
    """An endpoint with its settings and how sending to it goes."""
    health = endpoint.health
    out.fields(
        [
            ("endpoint", endpoint.id),
            ("url", endpoint.url),
            ("description", endpoint.description),
            ("state", "enabled" if endpoint.enabled else "disabled"),
            ("because", endpoint.disabled_reason),
            ("receives", endpoint.receives if endpoint.receives != "events" else None),
            ("types", endpoint.types or "all"),
            ("filter", endpoint.filter),
            ("secret", endpoint.secret),
            ("public key", endpoint.public_key),
            ("question key", endpoint.question_key),
            ("verified", _verified(endpoint)),
            ("headers", endpoint.headers),
            ("secret headers", endpoint.secret_headers),
            ("auth", endpoint.auth.kind if endpoint.auth else None),
            ("retry", None if endpoint.retry is None else asdict(endpoint.retry)),
            ("limits", None if endpoint.limits is None else asdict(endpoint.limits)),
            ("rate limit", None if endpoint.rate_limit is None else asdict(endpoint.rate_limit)),
            ("capability", None if endpoint.capability is None else asdict(endpoint.capability)),
            ("ordered", True if endpoint.order is not None and endpoint.order.ordered else None),
            ("breaker", health.breaker if health.breaker != "closed" else None),
            ("failing since", health.failing_since),
            ("last error", health.last_error),
            ("accepted last", health.accepted_at),
            ("made", endpoint.created_at),
            ("changed", endpoint.updated_at),
            ("warning", endpoint.warning),
        ]
    )


def _verified(endpoint: Endpoint) -> Any:
    of = endpoint.verification
    return of and (of.verified_at or ("no: `relay endpoints verify` sends a challenge" if of.required else None))


def show_job(out: Output, job: Job) -> None:
    """A job and how far it is."""
    out.fields(
        [
            ("job", job.id),
            ("kind", f"{job.kind}, dry run" if job.dry_run else job.kind),
            ("status", job.status),
            ("parameters", job.parameters),
            ("looked at", job.walked),
            ("found", job.matched),
            ("changed", job.changed),
            ("skipped", job.skipped),
            ("per second", job.per_second),
            ("error", job.error),
            ("asked by", job.actor),
            ("reason", job.reason),
            ("asked", job.created_at),
            ("began", job.started_at),
            ("ended", job.ended_at),
        ]
    )


def show_key(out: Output, key: Key) -> None:
    """A key, without its text unless it was made now."""
    out.fields(
        [
            ("key", key.key),
            ("id", key.id),
            ("name", key.name),
            ("tenant", key.tenant or "none: it is an operator's"),
            ("scopes", key.scopes),
            ("made by", key.created_by),
            ("made", key.created_at),
            ("expires", key.expires_at),
            ("revoked", key.revoked_at),
            ("used last", key.last_used_at),
        ]
    )
