"""The client and the command line against a real server, one for each module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from deliveries import keys
from relay.cli.app import app
from relay.client import Relay
from tests.api.rows import EVERY_SCOPE, Caller
from tests.processes.conftest import committed_database, db, tenant
from tests.support.web import Web

__all__ = ["committed_database", "db", "tenant"]


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
def web(committed_database: None) -> Iterator[Web]:
    """A server."""
    with Web() as running:
        yield running


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
