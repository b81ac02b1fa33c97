"""Lists that are longer than a page, as iterators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from relay.client.http import Http

Shape = TypeVar("Shape")

MOST_A_PAGE = 200


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]
    next_cursor: str | None = None


def pages(
    http: Http, path: str, shape: type[Shape], query: Mapping[str, Any], page_size: int = MOST_A_PAGE
) -> Iterator[list[Shape]]:
    """The list at `path`, page by page as it is asked for: what nobody asks for is not fetched.

    What arrives or goes meanwhile neither repeats nor hides another row.
    """
    cursor: str | None = None
    while True:
        answer = http.get(path, {**query, "limit": page_size, "cursor": cursor})
        page = answer.read(_Page)
        yield answer.part(b"[%b]" % b",".join(bytes(item) for item in page.items), list[shape])  # type: ignore[valid-type]
        cursor = page.next_cursor
        if cursor is None:
            return


def items(
    http: Http, path: str, shape: type[Shape], query: Mapping[str, Any], limit: int | None = None
) -> Iterator[Shape]:
    """The rows of the list at `path`; at most `limit`, with pages no larger than that."""
    left = limit
    if left == 0:
        return
    for page in pages(http, path, shape, query, MOST_A_PAGE if left is None else min(left, MOST_A_PAGE)):
        for row in page:
            yield row
            if left is not None:
                left -= 1
                if left == 0:
                    return
