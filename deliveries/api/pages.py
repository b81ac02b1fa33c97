"""Cursor pages: `{"items": […], "next_cursor": "…" or null}`, newest first unless a route says otherwise.

A cursor names the last row that was shown (a keyset), so rows that arrive or go meanwhile neither repeat nor hide
another. It is opaque to clients. Nothing is ever counted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.db.models import Exists, Model, Q, QuerySet
from ninja import Schema
from pydantic import ConfigDict, Field

from deliveries import ids
from deliveries.api.errors import invalid_field

DEFAULT_LIMIT, MOST = 50, 200
LOOKED_AT, STRETCH = 10_000, 1_000

Row = TypeVar("Row", bound=Model)
Kind = Literal["evt", "ep", "dlv", "op", "att", "job", "key", "ten", "type"]


class PageQuery(Schema):
    """What every list takes, and nothing else. A list's own filters are added in a subclass."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MOST, description="How many items at most.")
    cursor: str | None = Field(None, description="`next_cursor` of the page before.", max_length=300)


def encode(kind: Kind, *parts: object) -> str:
    """A cursor after the row that `parts` identify."""
    text = ":".join((kind, *map(str, parts)))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(kind: Kind, cursor: str, *types: Callable[[str], Any]) -> tuple[Any, ...]:
    """The parts of a cursor; 422 naming `cursor` when it is not one of this list."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        found, *parts = text.split(":")
        if found != kind:
            raise ValueError(f"a cursor of another list: {found}")
        return tuple(convert(part) for convert, part in zip(types, parts, strict=True))
    except (binascii.Error, ValueError) as strange:
        raise invalid_field("cursor", "is not a next_cursor of this list") from strange


def natural(text: str) -> int:
    """A non-negative 64-bit number, for `decode`."""
    if not text.isascii() or not text.isdigit() or (value := int(text[:20])) >= 2**63:
        raise ValueError("not a key")
    return value


def newest_first(
    rows: QuerySet[Row], kind: Kind, key: str, query: PageQuery, convert: Callable[[str], Any] = UUID
) -> tuple[list[Row], str | None]:
    """One page of `rows` by the unique column `key`, descending, and the cursor of the next."""
    if query.cursor is not None:
        (last,) = decode(kind, query.cursor, convert)
        rows = rows.filter(Q(**{f"{key}__lt": last}))
    found = list(rows.order_by(f"-{key}")[: query.limit + 1])
    return cut(found, query.limit, lambda row: encode(kind, getattr(row, key)))


def sifted(rows: QuerySet[Row], kind: Kind, key: str, query: PageQuery, hit: Exists) -> tuple[list[UUID], str | None]:
    """The keys of a page of those of `rows` that are a `hit`, newest first, and the cursor of the next.

    For what no index finds: at most `LOOKED_AT` rows are looked at for one page, which so may be short, or even empty,
    although there is a next one.
    """
    last: UUID | None = None
    if query.cursor is not None:
        (last,) = decode(kind, query.cursor, UUID)
    found: list[UUID] = []
    for _ in range(LOOKED_AT // STRETCH):
        left = rows if last is None else rows.filter(Q(**{f"{key}__lt": last}))
        stretch = list(left.order_by(f"-{key}").annotate(hit=hit).values_list(key, "hit")[:STRETCH])
        for place, is_hit in stretch:
            last = place
            if is_hit:
                found.append(place)
            if len(found) == query.limit:
                return found, encode(kind, last)
        if len(stretch) < STRETCH:
            return found, None
    return found, encode(kind, last)


def cut(found: list[Row], limit: int, cursor_of: Callable[[Row], str]) -> tuple[list[Row], str | None]:
    """Drop the row too many, which only tells that there is a next page."""
    shown = found[:limit]
    return shown, cursor_of(shown[-1]) if len(found) > limit else None


def filter_id(field: str, prefix: str, text: str) -> UUID:
    """The id in a query parameter; 422 naming it when it is malformed."""
    try:
        return ids.parse(prefix, text)
    except ids.MalformedId as malformed:
        raise invalid_field(field, str(malformed)) from malformed
