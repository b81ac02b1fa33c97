"""Another version has migrated the database for the second time, and what this one calls is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.db import ProgrammingError

from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.egress import EgressPolicy
from deliveries.transport.curl import CurlTransport
from ledger.statements import LEDGER, Statement
from tests.support.deliveries import endpoint, events, submitted
from tests.support.sink import Sink

pytestmark = pytest.mark.usefixtures("emptied")


@pytest.fixture
def engine() -> Iterator[Engine]:
    transport = CurlTransport(EgressPolicy.from_settings())
    yield Engine(owner="here:1:0", transport=transport, limits=Limits(), walk=Walk(), wake=lambda: None)
    transport.close()


@pytest.mark.parametrize("gone", ["operation.claim", "operation.settle"])
def test_a_dispatcher_says_so_and_ends_its_slice_instead_of_trying_for_ever(
    gone: str, tenant: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(LEDGER, gone, Statement(gone, LEDGER[gone].sql + "\n"))  # another text, another function
    with Sink() as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        begun = time.monotonic()
        with pytest.raises(ProgrammingError):
            engine.run(
                until=begun + 60, stopping=lambda: False, orphaned=lambda: False, tick=lambda: False,
                hand_over=lambda: None,
            )  # fmt: skip
        assert time.monotonic() - begun < 30
    said = [line for line in caplog.messages if "does not serve this version" in line]
    assert len(said) == 1
    assert "did not answer" not in caplog.text
    assert one.status == ("dispatching" if gone == "operation.settle" else "prepared")
    assert engine.leaves_claims, "the next slice must not take over what this one began"
