"""Asked a second time, `manage.py up` does not wait for anything, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable
from functools import partial

import pytest

from relay.up import IMPATIENT_AFTER_SECONDS
from tests.processes.test_up import Up, data_dir, gone, port, up
from tests.support.sink import Sink
from tests.support.waiting import wait_until

__all__ = ["data_dir", "port", "up"]  # the fixtures

pytestmark = pytest.mark.timeout(300)

KEY = "a-key-for-this-test-only"


def post(one: Up, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{one.port}{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert answer.status in (201, 202)


def test_a_second_signal_ends_it_although_a_receiver_hangs_and_leaves_no_process(up: Callable[..., Up]) -> None:
    with Sink(held=True) as sink:
        running = up(RELAY_BOOTSTRAP_KEY=KEY).ready()
        post(running, "/v1/endpoints", {"url": sink.url})
        post(running, "/v1/events", {"type": "a.b", "data": {}})
        sink.wait_for(1)
        family = running.family()
        running.process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        wait_until(lambda: "Stopping" in running.output, 20, "the wish heard")
        wait_until(lambda: time.monotonic() > asked + IMPATIENT_AFTER_SECONDS + 0.5, 10, "no longer the same wish")
        running.process.send_signal(signal.SIGINT)
        running.wait()
        # Sooner than the send's deadline: it was not waited for.
        assert time.monotonic() - asked < 12
        wait_until(partial(gone, family), 5, "no process left")
