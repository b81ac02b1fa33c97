"""The parts a detail page is made of. `templates/admin/relay/detail.html` draws them; values are escaped there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.safestring import SafeString

Value = str | int | SafeString
"""What a cell holds: plain text (escaped by the template) or markup made by `format_html`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    title: str
    rows: Sequence[tuple[str, Value]]
    note: Value = ""
    kind: str = "facts"
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headers; `empty` is said when there are none."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Value]]
    empty: str
    note: Value = ""
    kind: str = "table"
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One long value by itself."""

    title: str
    value: Value
    note: Value = ""
    kind: str = "block"
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened, at a time."""

    at: datetime
    time: Value
    title: Value
    tone: str
    facts: Sequence[tuple[str, Value]] = ()
    blocks: Sequence[tuple[str, Value]] = ()
    order: int = 0
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Entries in order of time."""

    title: str
    entries: Sequence[Entry]
    empty: str
    note: Value = ""
    kind: str = "timeline"
    anchor: str = ""

    def ordered(self) -> list[Entry]:
        """Oldest first; things of the same instant in their natural order."""
        return sorted(self.entries, key=lambda entry: (entry.at, entry.order))


Section = Facts | Table | Block | Timeline


@dataclass(frozen=True, slots=True)
class Button:
    """A link to an action's own page."""

    label: str
    url: str
    primary: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A whole detail page. `trail` are the pages above it."""

    title: str
    heading: Value
    sections: Sequence[Section]
    badges: Sequence[SafeString] = ()
    intro: Value = ""
    buttons: Sequence[Button] = ()
    trail: Sequence[tuple[str, str]] = field(default=())
