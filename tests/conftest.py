"""The database of the test session, and the environment in which tests start processes of their own."""

from __future__ import annotations

import os
from urllib.parse import urlencode

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from relay import embedded

# The server of a test session dies with it: nothing has to survive a power cut.
UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def database_server() -> None:
    """A PostgreSQL that answers: the session's own, or the one that DATABASE_URL names."""
    if not settings.RELAY_EMBEDDED:
        return
    embedded.ensure_running(settings.RELAY_DATA_DIR, overrides=UNSAFE_AND_FAST)
    superuser = embedded.dsn(settings.RELAY_DATA_DIR, user=embedded.SUPERUSER, dbname="postgres")
    with psycopg.connect(superuser, autocommit=True) as administrator:
        administrator.execute(f"ALTER ROLE {embedded.ROLE} CREATEDB")  # The test database is made by that role.


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_server: None, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """pytest-django asks for this before it makes the test database."""


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment for a process that is to use this session's test database."""
    parameters = connection.get_connection_params()
    known = ("dbname", "user", "password", "host", "port")
    query = urlencode({key: parameters[key] for key in known if parameters.get(key)})
    return {**os.environ, "DATABASE_URL": f"postgresql:///?{query}"}
