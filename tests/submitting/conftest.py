"""A database whose rows are committed, and a web server that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.conftest import committed_database, consumer, db, emptied, tenant
from tests.submitting.producer import Producer
from tests.support.web import Web

__all__ = ["committed_database", "consumer", "db", "emptied", "producer", "tenant", "web"]


@pytest.fixture(scope="module")
def web(committed_database: None) -> Iterator[Web]:
    with Web() as serving:
        yield serving


@pytest.fixture
def producer(web: Web, tenant: str) -> Producer:
    """Who submits to that server for a tenant of the test's own."""
    return Producer(web.url, tenant)
