from __future__ import annotations

from pathlib import Path

from relay.outcome_docs import render


def test_the_documented_outcomes_are_those_of_the_table() -> None:
    document = Path(__file__).parents[2] / "docs" / "outcomes.md"

    assert document.read_text(encoding="utf-8") == render(), "python -m relay.outcome_docs > docs/outcomes.md"
