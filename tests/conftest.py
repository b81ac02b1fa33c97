"""The database of the test session, and the environment in which tests start processes of their own.

Tests run with the rights that Relay has when it runs: their connection is a superuser's that has become the runtime
role, and the processes that they start log in as that role. So with a DATABASE_URL of one's own that URL must be a
superuser's, on a server where the test database and Relay's four roles may be made.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.test import TransactionTestCase
from psycopg.conninfo import make_conninfo
from pytest_django.plugin import DjangoDbBlocker

from relay import embedded, roles
from tests.support import database

# The server of a test session dies with it: nothing has to survive a power cut.
UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session", autouse=True)
def no_name_is_looked_up_outside() -> Iterator[None]:
    """Nothing that a test does in this process asks a name server: whatever has a name, but for this machine, has no
    address."""
    real = socket.getaddrinfo

    def only_here(host: Any, *more: Any, **named: Any) -> Any:
        if host not in (None, "", "localhost"):
            try:
                ipaddress.ip_address(host)
            except ValueError:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return real(host, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", only_here)
        yield


@pytest.fixture(scope="session")
def database_server() -> Iterator[None]:
    """A PostgreSQL that answers: the session's own, or the one that DATABASE_URL names. It has Relay's roles."""
    login = connections[DEFAULT_DB_ALIAS].settings_dict
    if settings.RELAY_EMBEDDED:
        embedded.ensure_running(settings.RELAY_DATA_DIR, overrides=UNSAFE_AND_FAST)
        login["USER"] = embedded.SUPERUSER
    with database.administrator() as administrator:
        assert administrator.info.parameter_status("is_superuser") == "on", "DATABASE_URL is not a superuser's"
        for role in roles.missing(administrator):
            administrator.execute(roles.creation(role))
        administrator.execute(roles.membership())
        administrator.execute(f"ALTER ROLE {roles.OWNER} CREATEDB")  # The test database is made by that role.
        yield
        administrator.execute(f"ALTER ROLE {roles.OWNER} NOCREATEDB")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_server: None, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """pytest-django asks for this before it makes the test database, and migrates it as soon as it is made.

    The owner may make tables in its schema before that. From PostgreSQL 16 on the owner of a database may anyway.
    """
    creation: Any = connections[DEFAULT_DB_ALIAS].creation
    make = creation._execute_create_test_db

    def make_and_grant(cursor: Any, parameters: dict[str, str], *more: Any) -> None:
        make(cursor, parameters, *more)
        name = parameters["dbname"].strip('"')
        with psycopg.connect(make_conninfo(**{**database.login(), "dbname": name}), autocommit=True) as administrator:
            for statement in roles.database_rights(name):
                administrator.execute(statement)

    creation._execute_create_test_db = make_and_grant
    database.become(roles.OWNER)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database, made and migrated by the owner; everything after that is done by the runtime role."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

    def unguarded_flush(test: TransactionTestCase) -> None:
        with database.unguarded():
            flush(test)
        database.restore()

    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setattr(TransactionTestCase, "_fixture_teardown", unguarded_flush)
        database.become(roles.RUNTIME)
        yield
        settings.HUEY.storage.close()  # The broker keeps its connection, and would keep the database.
        database.become(roles.OWNER)


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment for a process that is to use this session's test database."""
    return {**os.environ, "DATABASE_URL": database.url()}
