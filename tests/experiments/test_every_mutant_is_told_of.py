"""The table of conditions is whole."""

from __future__ import annotations

from pathlib import Path

from tests.support.mutants import MUTANTS

HERE = Path(__file__).parent


def test_every_condition_that_is_cut_is_in_the_table_and_in_an_experiment() -> None:
    table = (HERE / "README.md").read_text(encoding="utf-8")
    experiments = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_[a-g]_*.py"))
    for name in MUTANTS:
        assert f"`{name}`" in table, name
        assert f'"{name}"' in experiments or name.startswith("cancel: "), name
