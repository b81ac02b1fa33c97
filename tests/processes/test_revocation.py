"""A key that is in use, revoked: within the stated seconds no process of the web server takes it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from deliveries import keys
from tests.api import rows
from tests.support.waiting import wait_until
from tests.support.web import Web

PROCESSES, THREADS = 3, 6
SPARE_S = 0.5
"""From the commit of the revocation to the moment at which its answer is here, and for a clock's step."""


class _Use:
    """What became of requests with one key: when each began, and the status."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, int]] = []
        self.over = threading.Event()

    def go_on(self, url: str, text: str) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            # A connection of its own each time, so that every process of the server gets its share.
            answer = requests.get(
                f"{url}/v1/events", headers={"Authorization": f"Bearer {text}", "Connection": "close"}, timeout=30
            )
            self.answers.append((began, answer.status_code))


@contextmanager
def _in_use(url: str, text: str) -> Iterator[_Use]:
    use = _Use()
    threads = [threading.Thread(target=use.go_on, args=(url, text)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(use.answers) > 100, 30, "a key in use")
        yield use
    finally:
        use.over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("way", ["revoked", "rotated without an overlap"])
def test_every_process_refuses_a_key_within_the_stated_seconds(tenant: str, way: str) -> None:
    admin = rows.caller("admin", "read", tenant=tenant)
    made = admin.post("/v1/keys", {"name": "in use", "scopes": ["read"]}).json()
    with Web(RELAY_WEB_PROCESSES=str(PROCESSES)) as web, _in_use(web.url, made["key"]) as use:
        assert {status for _, status in use.answers} == {200}
        path = f"{web.url}/v1/keys/{made['id']}"
        headers = admin.headers
        if way == "revoked":
            answer = requests.delete(path, headers=headers, timeout=30)
        else:
            answer = requests.post(f"{path}/rotate", headers=headers, json={"overlap_hours": 0}, timeout=30)
        ended = time.monotonic()
        assert answer.ok, answer.text
        stated = ended + keys.REMEMBERED_FOR + SPARE_S
        wait_until(
            lambda: sum(began > stated for began, _ in use.answers) > 200, 60, "requests after the stated seconds"
        )
    late = [status for began, status in use.answers if began > stated]
    assert set(late) == {401}, f"{sum(status != 401 for status in late)} of {len(late)}"
    assert {status for _, status in use.answers} == {200, 401}
