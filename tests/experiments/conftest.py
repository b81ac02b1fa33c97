"""A database whose rows are committed: every experiment has processes of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.conftest import committed_database, db, emptied, tenant
from tests.races.rival import Observer, observing

__all__ = ["committed_database", "db", "emptied", "tenant"]


@pytest.fixture
def observer(db: None) -> Iterator[Observer]:
    """Sees whom the server keeps waiting."""
    with observing() as one:
        yield one
