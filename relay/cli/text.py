"""Values as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """`text` with its control characters spelt out, so that it cannot command a terminal; tabs and line feeds stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def shown(value: Any) -> str:
    """A value as people read it; a dash for what is not there."""
    match value:
        case None | "" | [] | {}:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return moment(value)
        case str():
            return clean(value)
        case list() if all(isinstance(one, str) for one in value):
            return clean(", ".join(value))
        case dict() | list():
            return clean(msgspec.json.encode(value).decode())
    return clean(str(value))


def moment(time: datetime) -> str:
    """A time in the zone of this machine."""
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def clock(time: datetime) -> str:
    """A time of the day in the zone of this machine."""
    return f"{time.astimezone():%H:%M:%S}"


def age(time: datetime) -> str:
    """How long ago."""
    return age_of((datetime.now(UTC) - time).total_seconds())


def age_of(seconds: float) -> str:
    """A span of time, roughly."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
