"""The client and the command line against a real server, one for each module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker
from typer.testing import CliRunner

from deliveries import keys
from relay.cli.app import app
from relay.client import Relay
from tests.api.rows import EVERY_SCOPE, Caller
from tests.support import database, deliveries
from tests.support.web import Web


class Typed:
    """What a command answered: its exit status, and what it wrote."""

    def __init__(self, result: Any) -> None:
        self.status: int = result.exit_code
        self.out: str = result.stdout
        self.err: str = result.stderr
        self.raised = result.exception

    @property
    def said(self) -> str:
        """Everything, for a message."""
        return f"{self.status}: {self.out!r} {self.err!r} {self.raised!r}"

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


Type = Callable[..., Typed]


@pytest.fixture(scope="module")
def committed_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database without a transaction around each test. Tests that share it use a tenant of their own each."""
    with django_db_blocker.unblock():
        database.empty()
        yield
        database.empty()
        settings.HUEY.storage.close()
        connections.close_all()


@pytest.fixture
def db(committed_database: None) -> None:
    """What a test writes is committed. By this name pytest-django knows that a database is needed."""


@pytest.fixture(scope="module")
def web(committed_database: None) -> Iterator[Web]:
    """A server."""
    with Web() as running:
        yield running


@pytest.fixture
def tenant(db: None) -> str:
    """A tenant of the test's own."""
    return deliveries.tenant()


@pytest.fixture
def key(tenant: str) -> str:
    """A key of that tenant that may do everything."""
    return keys.new_key("a test", EVERY_SCOPE, tenant)[1]


@pytest.fixture
def caller(key: str) -> Caller:
    """The same key, in this process: to set scenes with tests.api.rows."""
    return Caller(key)


@pytest.fixture
def relay(web: Web, key: str) -> Iterator[Relay]:
    """A client with that key."""
    with Relay(url=web.url, key=key) as client:
        yield client


@pytest.fixture
def typed(web: Web, key: str) -> Type:
    """Types a command, with that key in the environment. Nothing is left of an error that it did not foresee."""

    def type_(*words: str, answer: str | bytes | None = None, **environment: str) -> Typed:
        variables = {"RELAY_URL": web.url, "RELAY_KEY": key, **environment}
        result = Typed(CliRunner().invoke(app, list(words), input=answer, env=variables))
        assert result.raised is None or isinstance(result.raised, SystemExit), result.said
        assert "Traceback" not in result.err
        assert key not in result.out + result.err
        return result

    return type_
