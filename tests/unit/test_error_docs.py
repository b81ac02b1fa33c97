from __future__ import annotations

from pathlib import Path

import pytest

from deliveries.api.errors import CODES, SPECIFIC, ApiError
from relay.error_docs import render


def test_the_documented_errors_are_those_of_the_code() -> None:
    document = Path(__file__).parents[2] / "docs" / "errors.md"

    assert document.read_text(encoding="utf-8") == render(), "python -m relay.error_docs > docs/errors.md"


def test_a_code_that_is_not_documented_cannot_be_used() -> None:
    with pytest.raises(AssertionError, match="document new_code"):
        ApiError(409, "x", code="new_code")
    with pytest.raises(AssertionError, match="document unsettled"):
        ApiError(422, "x", code="unsettled")


def test_a_code_means_one_thing() -> None:
    assert not SPECIFIC.keys() & {code for code, _ in CODES.values()}
