"""`docs/guarantees.md` names tests, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_guarantees_name_is_there() -> None:
    named = NAMED.findall((BASE_DIR / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    assert len(named) > 25
    for path, name in named:
        text = (BASE_DIR / path).read_text(encoding="utf-8")
        assert not name or f"\ndef {name}(" in text, f"{path}::{name}"


def test_every_mutant_that_the_guarantees_name_is_tried() -> None:
    text = (BASE_DIR / "docs" / "guarantees.md").read_text(encoding="utf-8")
    mutants = (BASE_DIR / "tests" / "model" / "test_model.py").read_text(encoding="utf-8")
    named = re.findall(r"mutant `([A-Z_]+)`", text)
    assert named
    for mutant in named:
        assert f'"{mutant}"' in mutants, mutant
