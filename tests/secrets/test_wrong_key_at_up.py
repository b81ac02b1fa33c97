"""`manage.py up` with a key that does not open what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import requests

from tests.processes.test_up import Up, data_dir, port, up

__all__ = ["data_dir", "port", "up"]

pytestmark = pytest.mark.timeout(300)

ONE, OTHER = "one key of the tests " + "1" * 40, "another key of the tests " + "2" * 40


def test_up_starts_neither_web_server_nor_workers_until_it_has_the_former_key(
    up: Callable[..., Up],
    port: int,
) -> None:
    first = up(RELAY_SECRET_KEY=ONE).ready()
    key = re.search(r"API key +(\S+)", first.output)
    assert key is not None
    made = requests.post(
        f"http://127.0.0.1:{port}/v1/endpoints",
        json={"url": "http://127.0.0.1:9/"},
        headers={"Authorization": f"Bearer {key[1]}"},
        timeout=20,
    )
    assert made.status_code == 201
    assert first.stop() == 0

    refused = up(RELAY_SECRET_KEY=OTHER)
    assert refused.wait() == 1
    assert "(1 endpoints)" in refused.output
    assert "RELAY_SECRET_KEY_FALLBACKS" in refused.output
    assert "Relay is running" not in refused.output

    assert up(RELAY_SECRET_KEY=OTHER, RELAY_SECRET_KEY_FALLBACKS=ONE).ready().stop() == 0
