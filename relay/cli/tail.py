"""`relay tail`: deliveries as they come and change, a line for each change.

Watched are the newest `WATCHED` deliveries: that is how far a look goes back while one of them is not settled. A change
between two looks is shown as one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from relay.cli.output import COLOURS, note
from relay.cli.session import Session, UsageError, command, sentence
from relay.cli.signals import until_stopped
from relay.cli.text import clean, clock
from relay.client import Misconfigured, Relay, RelayError, Unauthorized
from relay.client.results import DeliveryItem

STATUSES = ("pending", "retrying", "sending", "unknown", "delivered", "failed", "cancelled")
SETTLED = frozenset({"delivered", "failed", "cancelled"})
WATCHED = 1_000


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    command(app, "tail")(tail)


def tail(
    session: Session,
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="EP", help="To this endpoint only.")] = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="Only changes to this status; may be repeated.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=WATCHED, help="First, so many of before.")] = 10,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Follow deliveries: a line for each new one and each change. Ctrl-C ends it."""
    wrong = [one for one in status or [] if one not in STATUSES]
    if wrong:
        raise UsageError(f"--status is one of {', '.join(STATUSES)}, not {wrong[0]!r}.")
    wanted = frozenset(status or STATUSES)
    watch = Watch(session.relay, endpoint)
    with until_stopped() as stopping:
        newest = list(watch.changes())
        shown = [row for row, _ in newest if row.status in wanted]
        for row in shown[-lines:] if lines else []:
            _print(session, row, None)
        away = False
        while not stopping.wait(every):
            try:
                for row, before in watch.changes():
                    if row.status in wanted:
                        _print(session, row, before)
            except (Unauthorized, Misconfigured):
                raise
            except RelayError as error:
                # It goes on when Relay is there again: what changed meanwhile is seen then.
                if error.status is not None and error.status not in {429, 502, 503, 504}:
                    raise
                if not away:
                    note(f"relay: {sentence(error)} Still trying.")
                away = True
            else:
                away = False


class Watch:
    """What the deliveries looked like when they were looked at last."""

    def __init__(self, relay: Relay, endpoint_id: str | None) -> None:
        self.relay = relay
        self.endpoint_id = endpoint_id
        self.known: dict[str, DeliveryItem] = {}

    def changes(self) -> Iterator[tuple[DeliveryItem, DeliveryItem | None]]:
        """What is new or changed since the last time, the oldest first, each with what it was before."""
        found: list[tuple[DeliveryItem, DeliveryItem | None]] = []
        first = not self.known
        open_ones = {name for name, row in self.known.items() if row.status not in SETTLED}
        seen: dict[str, DeliveryItem] = {}
        for row in self.relay.deliveries(endpoint_id=self.endpoint_id, limit=WATCHED):
            before = self.known.get(row.id)
            seen[row.id] = row
            open_ones.discard(row.id)
            if before is None or (row.status, row.attempts) != (before.status, before.attempts):
                found.append((row, before))
            # At a settled one that was there before, everything newer has been seen.
            if not first and before is not None and before.status in SETTLED and not open_ones:
                break
        self.known = dict(list((seen | {k: v for k, v in self.known.items() if k not in seen}).items())[:WATCHED])
        yield from reversed(found)


def _print(session: Session, row: DeliveryItem, before: DeliveryItem | None) -> None:
    if session.json:
        session.out.record({"was": None if before is None else before.status, **_fields(row)})
        return
    was = "" if before is None or before.status == row.status else f"{before.status} → "
    tries = "" if row.attempts == 0 else f"  attempt {row.attempts}"
    due = "" if row.due_at is None or row.status != "retrying" else f", next {clock(row.due_at)}"
    at = row.created_at if before is None and row.status == "pending" else row.updated_at
    session.out.say(
        f"{clock(at)}  {row.id}  {clean(row.event_type)} → {row.endpoint_id}  {was}{row.status}{tries}{due}",
        COLOURS.get(row.status, ""),
    )


def _fields(row: DeliveryItem) -> dict[str, object]:
    return {name: getattr(row, name) for name in DeliveryItem.__dataclass_fields__}
