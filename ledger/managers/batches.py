"""What a batch may name. A set of keys says nothing more when it names one twice; a set of writes says two things."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def once(keys: Iterable[Key]) -> list[Key]:
    """The keys in their order, each one once: what is asked twice is done once."""
    return list(dict.fromkeys(keys))


def check_once(keys: Iterable[Hashable], what: str) -> None:
    """`ValueError` when a key comes twice: a statement writes a row once, so two writes of it are two batches."""
    listed = list(keys)
    if len(set(listed)) != len(listed):
        raise ValueError(f"a batch names each {what} once: two writes of it have an order, so they are two batches")
