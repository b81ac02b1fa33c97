"""A database whose rows are committed, for tests with processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from tests.support import database, deliveries
from tests.support.consumer import Consumer


@pytest.fixture(scope="module")
def committed_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database without a transaction around each test, left as empty as a migration leaves it.

    Tests that share it use a tenant of their own each.
    """
    with django_db_blocker.unblock():
        database.empty()
        yield
        database.empty()
        settings.HUEY.storage.close()
        connections.close_all()


@pytest.fixture
def db(committed_database: None) -> None:
    """In this folder what a test writes is committed. By this name pytest-django knows that a database is needed."""


@pytest.fixture
def emptied(db: None) -> None:
    """For tests with consumers of their own, which would take up what an earlier test left behind."""
    database.empty()


@pytest.fixture(scope="module")
def consumer(committed_database: None) -> Iterator[Consumer]:
    """One consumer for all tests of a module: for those that do it no harm."""
    with Consumer() as running:
        yield running


@pytest.fixture
def tenant(db: None) -> str:
    """A tenant of the test's own."""
    return deliveries.tenant()
