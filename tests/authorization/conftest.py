"""A dispatcher in this process, and a database whose rows are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deliveries.dispatch import tokens
from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.tokens import Tokens
from deliveries.egress import EgressPolicy
from deliveries.transport.curl import CurlTransport
from tests.authorization.servers import secrets_of
from tests.processes.conftest import committed_database, db, emptied, tenant
from tests.support.waiting import wait_until

__all__ = ["committed_database", "db", "emptied", "tenant"]

Deliver = Callable[[Callable[[], object], str], None]


@pytest.fixture
def engine(emptied: None) -> Iterator[Engine]:
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


@pytest.fixture
def deliver(engine: Engine) -> Deliver:
    """`deliver(condition, what)`: let the dispatcher work until the condition holds."""

    def work(condition: Callable[[], object], what: str) -> None:
        def holds() -> object:
            engine._turn(claiming=True, tick=lambda: False)
            return condition()

        wait_until(holds, 30, what)

    return work


@pytest.fixture(autouse=True)
def no_token_from_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a new process does: it has no tokens."""
    ours = Tokens()
    monkeypatch.setattr(tokens, "ready", ours.ready)
    monkeypatch.setattr(tokens, "forget", ours.forget)


@pytest.fixture(autouse=True)
def no_secret_in_a_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does, no secret of `servers` is logged."""
    caplog.set_level("DEBUG")
    yield
    assert not secrets_of(caplog.text)
