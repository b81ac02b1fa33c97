"""Fixtures of the races: real transactions, and somebody who watches them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.races.rival import Observer, observing


@pytest.fixture
def observer(transactional_db: None) -> Iterator[Observer]:
    """Sees whom the server keeps waiting. What the test writes is committed."""
    with observing() as one:
        yield one
