"""What is listed and what is done about it: `relay deliveries`, `unknown`,
`resolve`, `query`, `cancel`, `replay`, `stats`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from relay.cli.session import Limit, Session, Stopped, UsageError, Yes, command, since
from relay.cli.show import delivery_table, happened
from relay.cli.text import age
from relay.client.results import Delivery

_NOT_REPLAYED = {
    "goes_on": "no: it goes on",
    "unsettled": "no: nobody knows what became of it; resolve it first",
    "endpoint_deleted": "no: its endpoint is deleted",
}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in (
        ("deliveries", deliveries),
        ("unknown", unknown),
        ("resolve", resolve),
        ("query", query),
        ("cancel", cancel),
        ("replay", replay),
        ("stats", stats),
    ):
        command(app, name)(function)


def deliveries(
    session: Session,
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="EP", help="To this endpoint.")] = None,
    event: Annotated[str | None, typer.Option("--event", metavar="EVT", help="Of this event.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="That are so now.")] = None,
    after: Annotated[str | None, typer.Option("--since", metavar="TIME", help="As 2h, 3d, or a time.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time.")] = None,
    limit: Limit = 20,
) -> None:
    """List deliveries, newest first."""
    filters: dict[str, Any] = {
        "endpoint_id": endpoint,
        "event_id": event,
        "status": status,
        "since": None if after is None else since(after),
        "until": None if until is None else since(until),
    }
    rows = list(session.relay.deliveries(limit=limit, **filters))
    if session.json:
        session.out.document(rows)
    else:
        delivery_table(session.out, rows, empty="There are none.")


def unknown(session: Session, limit: Limit = 50) -> None:
    """List the operations of which nobody knows what became."""
    rows = list(session.relay.operations(status="unknown", limit=limit))
    if session.json:
        session.out.document(rows)
        return
    session.out.table(
        ("operation", "since", "type", "endpoint", "tries"),
        [
            (row.id, age(row.unknown_since or row.updated_at), row.event_type, row.endpoint_id, row.attempts)
            for row in rows
        ],
        empty="There are none: what became of everything is known.",
    )


def resolve(
    session: Session,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="As `relay unknown` shows it.")],
    reason: Annotated[str, typer.Option("--reason", help="Why: kept for ever with the name of the key.")],
    delivered: Annotated[bool, typer.Option("--delivered", help="It arrived.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It did not, and is not sent again.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Send it again, under the same id.")] = False,
    yes: Yes = False,
) -> None:
    """Settle an unknown operation by what you found out. It shows what is known, and asks before."""
    choices: list[tuple[bool, Literal["succeeded", "failed", "retry"]]] = [
        (delivered, "succeeded"),
        (failed, "failed"),
        (retry, "retry"),
    ]
    chosen = [decision for said, decision in choices if said]
    if len(chosen) != 1:
        raise UsageError("Say one of --delivered, --failed and --retry.")
    now = session.relay.operation(operation)
    if now.status != "unknown":
        raise Stopped(f"It is {now.status}, so there is nothing to resolve.")
    if not session.json:
        happened(session.out, now)
    session.sure(f"{now.event_type} to {now.endpoint_id}: resolve it as {chosen[0]}?", yes=yes)
    resolved = session.relay.resolve(operation, chosen[0], reason, revision=now.revision)
    _told(session, resolved, "It is sent again, under the same id." if retry else f"It is {resolved.status} now.")


def query(
    session: Session, operation: Annotated[str, typer.Argument(metavar="OPERATION", help="An unknown one.")]
) -> None:
    """Ask the receiver now what became of an unknown operation."""
    asked = session.relay.query(operation)
    _told(session, asked, f"The receiver says {asked.said}. {asked.detail} It is {asked.operation.status} now.")


def cancel(
    session: Session,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="dlv_…")],
    yes: Yes = False,
) -> None:
    """Send nothing more of a delivery."""
    session.sure(f"Cancel {delivery}?", yes=yes)
    cancelled = session.relay.cancel(delivery)
    _told(session, cancelled, cancelled.detail or f"It is {cancelled.status} now.")


def replay(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a delivery, or of an event.")],
) -> None:
    """Deliver once more: one delivery, or all of an event."""
    answer = session.relay.replay(id)
    if isinstance(answer, Delivery):
        _told(session, answer, f"{answer.id} is delivered once more: it is {answer.status}.")
    elif session.json:
        session.out.document(answer)
    else:
        session.out.table(
            ("delivery", "endpoint", "is delivered once more"),
            [(one.delivery_id, one.endpoint_id, one.replayed or _NOT_REPLAYED.get(one.reason or "")) for one in answer],
            empty="No endpoint wanted it.",
        )


def stats(session: Session) -> None:
    """Numbers about what is going on."""
    numbers = session.relay.stats()
    if session.json:
        session.out.document(numbers)
    else:
        session.out.fields((name.replace("_", " "), value) for name, value in asdict(numbers).items())


def _told(session: Session, answer: Any, text: str) -> None:
    session.out.document(answer) if session.json else session.out.say(text)
