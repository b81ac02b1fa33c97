"""A database whose rows are committed, and one recorded history of the real engine for all tests of this folder."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

from tests.history.recording import Recording, record
from tests.support import database


@pytest.fixture(scope="session")
def recording(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Recording:
    """What a consumer, its receivers and the journal did together, once. Nobody changes it: mutations are copies."""
    with django_db_blocker.unblock():
        database.empty()
        found = record()
        database.empty()  # at once: the tests of other folders that follow expect to be alone
        settings.HUEY.storage.close()
        connections.close_all()
    return found


@pytest.fixture
def db(recording: Recording) -> None:
    """By this name pytest-django knows that a database is needed."""
