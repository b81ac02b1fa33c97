"""Fixtures of the API tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.api import rows
from tests.api.rows import Caller


@pytest.fixture(scope="session", autouse=True)
def broker_connection(django_db_setup: None) -> Iterator[None]:
    """An accepted event rings, and the broker keeps its connection: it must be gone before the test database goes."""
    yield
    settings.HUEY.storage.close()


@pytest.fixture
def mine(db: None) -> Caller:
    """A caller of the tenant `default` with every scope."""
    rows.tenant("default")
    return rows.caller()


@pytest.fixture
def theirs(db: None) -> Caller:
    """A caller of another tenant with every scope."""
    return rows.caller(tenant=rows.tenant("other"))
