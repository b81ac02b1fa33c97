"""What is written here is committed: rotations are waited for by their transactions."""

from __future__ import annotations

import pytest

from tests.api import rows
from tests.api.rows import Caller
from tests.processes.conftest import committed_database, db, emptied, tenant

__all__ = ["committed_database", "db", "emptied", "mine", "tenant"]


@pytest.fixture
def mine(tenant: str) -> Caller:
    """A caller of a tenant of the test's own, with every scope."""
    return rows.caller(tenant=tenant)
