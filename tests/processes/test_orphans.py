"""A dispatcher whose consumer is gone ends, also when the database has gone with it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.db import connection

from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.egress import EgressPolicy
from deliveries.transport.curl import CurlTransport
from tests.support.deliveries import endpoint, events, submitted
from tests.support.sink import Sink

pytestmark = pytest.mark.usefixtures("emptied")


@pytest.fixture
def engine() -> Iterator[Engine]:
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


@pytest.mark.parametrize("answered", [False, True])
def test_an_orphan_without_a_database_does_not_wait_for_it(
    tenant: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        engine.claim()
        engine.send()
        while not sink.requests:
            engine.transport.poll(0.05)
        if answered:
            assert sink.let_go() == 1
        with monkeypatch.context() as away:
            away.setitem(connection.settings_dict, "HOST", "/nowhere")
            connection.close()
            began = time.monotonic()
            engine.run(
                until=0.0, stopping=lambda: True, orphaned=lambda: True, tick=lambda: False, hand_over=lambda: None
            )
            assert time.monotonic() - began < engine.limits.timeout_ms / 1000
        connection.close()
        if not answered:
            sink.let_go()

    assert one.status == "dispatching", "its outcome is left to the reconciler"
    assert engine.transport.in_flight == 0
