"""`relay send`: submit one event, or many from a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from relay.cli.session import Session, Stopped, UsageError, command, content, since
from relay.client import NewEvent


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    command(app, "send")(send)
    command(app, "send-batch")(send_batch)


def send(
    session: Session,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="As invoice.paid.")],
    data: Annotated[
        str, typer.Argument(metavar="[DATA|@FILE|-]", help="JSON; receivers get these bytes.", show_default=False)
    ] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Your own id of the event.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key again stores nothing new.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Where it comes from.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--metadata", "-m", metavar="NAME=VALUE")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME: VALUE", help="Sent with it to receivers.")
    ] = None,
    deliver_at: Annotated[str | None, typer.Option("--deliver-at", metavar="TIME", help="Not before.")] = None,
) -> None:
    """Submit an event. Its data is the argument, a file, or standard input."""
    body = content(data)
    try:
        sent = session.relay.send(
            type,
            body,
            id=id,
            idempotency_key=idempotency_key,
            source=source,
            metadata=pairs(metadata, "=", "--metadata"),
            headers=pairs(header, ":", "--header"),
            deliver_at=None if deliver_at is None else since(deliver_at),
        )
    except ValueError as strange:
        raise UsageError(f"Nothing was sent: {strange}.") from None
    if session.json:
        session.out.document(sent)
        return
    wanted = "nobody wants it" if sent.deliveries == 0 else f"deliveries: {sent.deliveries}"
    session.out.say(f"{sent.id}  {wanted}{', accepted before' if sent.replayed else ''}")


def pairs(given: list[str] | None, between: str, option: str) -> dict[str, str] | None:
    """`NAME=VALUE` as a mapping; None when there is none. `UsageError` for what is not of this form."""
    found = {}
    for text in given or []:
        name, divided, value = text.partition(between)
        if not divided or not name.strip():
            raise UsageError(f"{option} takes NAME{between}VALUE, not {text[:60]!r}.")
        found[name.strip()] = value.strip() if between == ":" else value
    return found or None


def send_batch(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="One event a line, as the API takes it.")],
) -> None:
    """Submit events from a file, one a line: {"type", "data", "id"?, …}. What is refused is told by its line."""
    accepted = refused = 0
    numbers: list[int] = []
    for result in session.relay.send_each(_events(file, numbers)):
        if session.json:
            session.out.record(result)
        if result.error is None:
            accepted += 1
        else:
            refused += 1
            session.out.say(f"line {numbers[result.index]}: {result.error.detail}", "red")
    session.out.say(f"{accepted} accepted, {refused} refused")
    if refused:
        raise Stopped(f"{refused} of {accepted + refused} events were refused; the others are accepted.")


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the file."""

    type: str
    data: msgspec.Raw
    id: str | None = None
    idempotency_key: str | None = None
    source: str | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    deliver_at: datetime | None = None


def _events(file: str, numbers: list[int]) -> Iterator[NewEvent]:
    """The events of a file; `numbers` gets the line of each."""
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                read = msgspec.json.decode(line, type=_Line)
                event = NewEvent(**{name: getattr(read, name) for name in _Line.__struct_fields__ if name != "data"},
                                 data=bytes(read.data))  # fmt: skip
                event.body(with_key=True)
            except (msgspec.DecodeError, ValueError, RecursionError) as strange:
                raise UsageError(f"Line {number} is no event: {strange}. Lines after it were not sent.") from None
            numbers.append(number)
            yield event


def _opened(file: str) -> contextlib.AbstractContextManager[Iterable[bytes]]:
    if file == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as refused:
        raise UsageError(f"{file} cannot be read: {refused.strerror}.") from None
