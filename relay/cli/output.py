"""What commands print: tables, fields and lines for people, JSON for programs.

For people: times are local, tables fit the terminal, colours only on a terminal and without NO_COLOR. Into a pipe
nothing is cut. What came from elsewhere is shown without its control characters, so it cannot write to the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relay.cli.text import clean, shown

ENDLESS = 100_000
"""Characters in a line that goes into a pipe."""

GAP = 2
UNCUT, SHORTEST = 19, 8
"""Up to how many characters a column is never cut (a time is whole, or not there), and to how many a longer one is."""

COLOURS = {
    "delivered": "green",
    "succeeded": "green",
    "done": "green",
    "enabled": "green",
    "failed": "red",
    "failed_final": "red",
    "disabled": "red",
    "revoked": "red",
    "unknown": "bold yellow",
    "retrying": "yellow",
    "sending": "cyan",
    "running": "cyan",
    "cancelled": "dim",
}


class Output:
    """Where a command prints to. `json`: for a program."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.live = sys.stdout.isatty() and not json
        self.console = _console(sys.stdout)

    def document(self, value: Any) -> None:
        """One JSON document, in lines that people can read too."""
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

    def record(self, value: Any) -> None:
        """One line of a stream of JSON."""
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()

    def say(self, text: str, style: str = "") -> None:
        """A sentence for people. Nothing for programs."""
        if not self.json:
            self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
        """Rows under their columns; `empty` is said when there is none. The first column and short ones are never cut;
        where there is no room for the others, the last are left out."""
        cells = [[shown(value).replace("\n", " ") for value in row] for row in rows]
        if not cells:
            self.say(empty)
            return
        widths = _widths([max(map(len, column)) for column in zip(columns, *cells, strict=True)], self.console.width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for at, width in enumerate(widths):
            overflow: Literal["fold", "ellipsis"] = "fold" if at == 0 else "ellipsis"
            table.add_column(columns[at], no_wrap=at > 0, overflow=overflow, width=width)
        for row in cells:
            table.add_row(*(Text(text, style=COLOURS.get(text, "")) for text in row[: len(widths)]))
        self.console.print(table)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """One thing, a field a line."""
        known = [(name, shown(value)) for name, value in pairs if value not in (None, "", [], {})]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            line = Text(f"{name:<{width}}  ", style="bold")
            line.append(value.replace("\n", "\n" + " " * (width + 2)), style=COLOURS.get(value, "not bold"))
            self.console.print(line, soft_wrap=True)

    def heading(self, text: str) -> None:
        """What the following is about."""
        self.console.print()
        self.console.print(Text(clean(text), style="bold underline"))


def complain(text: str) -> None:
    """A sentence to stderr."""
    _console(sys.stderr).print(Text(clean(text), style="red"), soft_wrap=True)


def note(text: str) -> None:
    """A remark to stderr, which is no error."""
    _console(sys.stderr).print(Text(clean(text)), soft_wrap=True)


def _widths(wanted: list[int], room: int) -> list[int]:
    """How wide columns may be that would like to be so wide, the first ones at least."""
    least = [size if at == 0 or size <= UNCUT else SHORTEST for at, size in enumerate(wanted)]
    fitting = len(wanted)
    while fitting > 1 and sum(least[:fitting]) + GAP * fitting > room:
        fitting -= 1
    widths = wanted[:fitting]
    while sum(widths) + GAP * fitting > room and fitting > 1:
        longest = max(range(fitting), key=lambda at: widths[at] - least[at])
        if widths[longest] == least[longest]:
            break
        widths[longest] -= 1
    return widths


def _console(stream: Any) -> Console:
    wide = None if stream.isatty() else ENDLESS
    plain = not stream.isatty() or "NO_COLOR" in os.environ
    return Console(
        file=stream, width=wide, highlight=False, markup=False, emoji=False, color_system=None if plain else "auto"
    )
