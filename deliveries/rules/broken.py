"""How a broken rule is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: the column (with a part behind a full stop, where it has parts) and one plain sentence."""

    field: str
    detail: str


class RuleBroken(ValueError):
    """A value breaks the rule of its column; `part` names the part of it, where it has parts.

    The message holds nothing that may be secret.
    """

    def __init__(self, detail: str, part: str = "") -> None:
        super().__init__(detail)
        self.part = part
