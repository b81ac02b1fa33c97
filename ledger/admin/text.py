"""How values are shown: text from outside made harmless and bounded, times in UTC for a script to make local.

Everything that came over the wire (payloads, responses, errors, URLs, owners) is hostile. It is escaped, and the
characters that move or hide their neighbours (bidirectional controls, C0 and C1 controls, zero-width ones) are shown
by their code point, so that what a person reads is what was received.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.utils.html import format_html
from django.utils.safestring import SafeString

SHOWN_BYTES = 16 * 1024
"""How much of a payload or of a response a page shows."""

# Bidirectional controls (Unicode UAX #9 §2), zero-width characters, line and paragraph separators, C0 and C1 controls
# other than tab and line feed, and lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

LINE = 500
"""How many characters of a text from outside fit a line of a detail page."""
SHORT_CODE = 24
"""A word up to this length is not broken over two lines."""

TONES = {
    "succeeded": "good", "delivered": "good", "accepted": "good", "answered": "good",
    "failed": "bad", "failed_final": "bad", "rejected": "bad",
    "unknown": "warn", "overdue": "warn",
    "dispatching": "busy", "running": "busy", "sending": "busy", "retrying": "busy",
}  # fmt: skip


def reveal(text: str) -> str:
    """`text` with invisible and direction-changing characters written as `⟨U+202E⟩`."""
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)


def outside(value: object, limit: int = LINE) -> str | SafeString:
    """Text from outside, in a line: escaped, isolated in its direction, at most `limit` characters."""
    if value is None or value == "":
        return "—"
    text = str(value)
    if len(text) <= limit:
        return format_html('<bdi class="relay-outside">{}</bdi>', reveal(text))
    if limit < LINE:
        # In a list the rest is on hover; the page of the row has all of it.
        return format_html('<bdi class="relay-outside" title="{}">{}…</bdi>', reveal(text[:LINE]), reveal(text[:limit]))
    more = f" … {len(text) - limit:,} more characters"
    return format_html('<span><bdi class="relay-outside">{}</bdi>{}</span>', reveal(text[:limit]), more)


def code(value: object) -> str | SafeString:
    """An id or another short word of ours or of theirs, in a fixed-width face."""
    if value is None or value == "":
        return "—"
    text = str(value)[:200]
    short = " relay-code--short" if len(text) <= SHORT_CODE else ""
    return format_html('<code class="relay-code{}"><bdi>{}</bdi></code>', short, reveal(text))


def block(
    value: str | bytes | memoryview | None, limit: int = SHOWN_BYTES, size: int | None = None
) -> str | SafeString:
    """A body as it was received: the first `limit` bytes as UTF-8, then how many more there are.

    `size`: how many bytes there are in all, when `value` is only the beginning.
    """
    if value is None:
        return "—"
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    if not raw:
        return format_html('<span class="relay-muted">{}</span>', "Empty: 0 bytes.")
    # A character cut in two at the limit is left out rather than shown as damaged.
    shown = raw[:limit].decode("utf-8", "replace")
    size = len(raw) if size is None else size
    if size > limit:
        shown = shown.rstrip("\N{REPLACEMENT CHARACTER}")
        more = format_html('<p class="relay-muted">… {} more bytes</p>', f"{size - limit:,}")
    else:
        more = SafeString()
    return format_html('<pre class="relay-block" tabindex="0">{}</pre>{}', reveal(shown), more)


def pretty(value: Any, limit: int = SHOWN_BYTES) -> str | SafeString:
    """A JSON value, indented; `—` for nothing at all."""
    if value is None or value in ({}, []):
        return "—"
    return block(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True), limit)


def badge(word: str, tone: str | None = None, label: str | None = None) -> SafeString:
    """A status: coloured, and readable without the colour."""
    return format_html(
        '<span class="relay-badge relay-badge--{}">{}</span>',
        tone or TONES.get(word, "plain"),
        reveal((label or word)[:80]),
    )


def when(moment: datetime | None, missing: str = "—") -> str | SafeString:
    """A time in UTC; `relay/times.js` rewrites it in the viewer's zone and keeps the exact UTC as the hover text."""
    if moment is None:
        return missing
    utc = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        utc.isoformat(),
        utc.strftime("%Y-%m-%d %H:%M:%S.%f UTC"),
        utc.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )


def span(length: timedelta) -> str:
    """A length of time in its two largest units: `2 h 5 min`, `340 ms`."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"


def ago(moment: datetime | None, now: datetime) -> str:
    """`5 min 3 s ago` or `in 12 s`, judged by the database's clock."""
    if moment is None:
        return "—"
    return f"{span(now - moment)} ago" if moment <= now else f"in {span(moment - now)}"


def database_now() -> datetime:
    """The clock of the database: the only one that leases and due times are judged by."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment
