"""What every command has: where Relay is, with which key, how to print, and one sentence for what goes wrong."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from relay.cli.output import Output, complain
from relay.cli.text import clean
from relay.client import Changed, Conflict, Forbidden, Misconfigured, NotFound, Relay, RelayError, Unauthorized
from relay.client.relay import DEFAULT_TIMEOUT_S, DEFAULT_URL

_PANEL = "Where and how"
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,6})\s*(s|m|min|h|d|w)")


class UsageError(Exception):
    """What was typed cannot be meant: exit status 2."""


class Stopped(Exception):
    """It did not come to what was asked for: exit status 1."""


@dataclass
class Session:
    """One command's connection and output."""

    url: str | None
    key: str | None = field(repr=False)
    tenant: str | None
    timeout: float
    json: bool

    @cached_property
    def out(self) -> Output:
        """Where it prints to."""
        return Output(json=self.json)

    @cached_property
    def relay(self) -> Relay:
        """The client; made when it is asked for, since some commands need none."""
        return Relay(url=self.url, key=self.key, tenant=self.tenant, timeout=self.timeout)

    def sure(self, what: str, *, yes: bool) -> None:
        """Ask before something is done that cannot be taken back; `Stopped` unless the answer is yes."""
        if yes:
            return
        sys.stderr.write(f"{clean(what)} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer:
            sys.stderr.write("\n")
            raise Stopped("Nothing was done: there is nobody to ask; say --yes if you mean it.")
        if answer.strip().lower() not in {"y", "yes"}:
            raise Stopped("Nothing was done.")


Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="RELAY_URL", help=f"Where Relay is; else {DEFAULT_URL}.", show_default=False,
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Key = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="RELAY_KEY", help="The API key. The variable keeps it out of `ps`.", show_default=False,
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", envvar="RELAY_TENANT", help="With an operator's key: for whom.", show_default=False,
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.", rich_help_panel=_PANEL)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_PANEL)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]

_COMMON: dict[str, tuple[Any, Any]] = {
    "at_url": (Url, None),
    "at_key": (Key, None),
    "at_tenant": (Tenant, None),
    "at_timeout": (Timeout, DEFAULT_TIMEOUT_S),
    "at_json": (Json, False),
}
"""Under names that no command gives to a parameter of its own."""


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of a `Session` a command of `app`, with the options that all commands have."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name)(prepared(function))
        return function

    return register


def prepared(function: Callable[..., None]) -> Callable[..., None]:
    """A function of a `Session` as typer takes it: with its own options, then those that all commands have."""
    hints = get_type_hints(function, include_extras=True)
    _, *own = inspect.signature(function).parameters.values()

    @functools.wraps(function)
    def run(**given: Any) -> None:
        session = Session(**{name.removeprefix("at_"): given.pop(name) for name in _COMMON})
        guarded(lambda: function(session, **given))

    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _COMMON.items()
    ]
    mine = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in own]
    run.__signature__ = inspect.Signature([*mine, *common])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*mine, *common)}
    del run.__wrapped__
    return run


def guarded(work: Callable[[], None]) -> None:
    """Do the work; what a user can cause ends in one sentence and an exit status, never in a traceback."""
    try:
        work()
    except (UsageError, Misconfigured) as wrong:
        complain(f"relay: {wrong}")
        raise typer.Exit(2) from None
    except Stopped as stopped:
        complain(f"relay: {stopped}")
        raise typer.Exit(1) from None
    except RelayError as error:
        complain(f"relay: {sentence(error)}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("relay: stopped.")
        raise typer.Exit(130) from None


def sentence(error: RelayError) -> str:
    """What went wrong, and what to do about it."""
    detail = error.detail
    match error:
        case Forbidden():
            return f"{detail} Use a key that has it, or ask an operator for one."
        case Unauthorized():
            return f"{detail} Give one that works as RELAY_KEY."
        case NotFound():
            return f"{detail} Look at the id, and whether the key (or RELAY_TENANT) is its tenant's."
        case Changed():
            return f"{detail} Read it again, and decide again."
        case Conflict() if error.code == "idempotency_conflict":
            return f"{detail} Give other content another key."
    if error.code == "unreachable":
        return f"{detail} Is Relay running there, and is RELAY_URL right?"
    if error.status is not None and error.status >= 500 and error.retry_after is not None:
        return f"{detail} Try again in {error.retry_after:.0f} s."
    return detail


def since(text: str) -> datetime:
    """A time: `2h`, `3d` (so long ago), or RFC 3339; without a zone, this machine's. `UsageError` otherwise."""
    span = _SPAN.fullmatch(text.strip())
    if span:
        return datetime.now(UTC) - timedelta(seconds=int(span[1]) * _UNITS[span[2]])
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"A time is like 2h, 3d or 2030-01-31T09:30:00Z, not {text[:60]!r}.") from None


def content(given: str) -> bytes:
    """What an argument stands for: `-` standard input, `@file` a file, else itself. `UsageError` for no such file."""
    if given == "-":
        return sys.stdin.buffer.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_bytes()
        except OSError as refused:
            raise UsageError(f"{given[1:]} cannot be read: {refused.strerror}.") from None
    return given.encode("utf-8", "surrogateescape")
