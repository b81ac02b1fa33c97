"""Names whose servers never answer hold up nobody else. `RELAY_SOAK=1` has 300 of them; the figures are printed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from deliveries.transport import resolve
from tests.egress import namespace
from tests.egress.slow_names import PER_NAME, trial

NAMES = 300 if os.environ.get("RELAY_SOAK") == "1" else 40


@pytest.mark.skipif(not namespace.available(), reason="this machine lets nobody make namespaces")
def test_silent_name_servers_do_not_slow_a_healthy_endpoint_down() -> None:
    _judge(namespace.play("slow_names", str(NAMES)), "name servers that never answer")


def test_look_ups_that_never_end_do_not_slow_a_healthy_endpoint_down(
    release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str) -> tuple[str, ...]:
        if host.startswith("silent"):
            release.wait(60)
        return ("127.0.0.1",)

    monkeypatch.setattr(resolve, "REMEMBER_S", resolve.REMEMBER_S)  # the trial sets it
    _judge(trial(look_up, NAMES), "look-ups that never end")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def _judge(found: dict[str, Any], what: str) -> None:
    alone, beside = found["alone"], found["beside"]
    print(f"\n{found['names']} names with {what}: alone {alone}, beside them {beside}, {found['threads']} threads")
    assert found["given_up"] >= found["names"] * PER_NAME
    assert found["threads"] <= resolve.ALL_AT_ONCE
    assert {tuple(one) for one in found["silent"]} <= {
        ("not_sent", "The host name was not resolved in time."),
        # After ten seconds the system's resolver gives up before those do who wait.
        ("not_sent", "The host name could not be resolved: Temporary failure in name resolution."),
    }
    for name in ("used_ms", "new_ms"):
        assert beside[name] <= 3 * alone[name] + 50, name
