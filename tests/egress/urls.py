"""The hostile URLs, read from tests/data/hostile-urls.txt, which says what its columns mean."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent.parent / "data" / "hostile-urls.txt"
NO_ADDRESS = "(no address)"


class Line(NamedTuple):
    url: str
    saved: str
    addresses: tuple[str, ...]
    called: bool


def read() -> list[Line]:
    """Every line, in the file's order."""
    lines = []
    for text in FILE.read_text().splitlines():
        if text.startswith("#"):
            continue
        url, saved, answer, sent = text.split(" | ")
        addresses = () if answer == NO_ADDRESS else tuple(answer.split(","))
        lines.append(Line(ast.literal_eval(url), saved, addresses, {"called": True, "refused": False}[sent]))
    return lines
