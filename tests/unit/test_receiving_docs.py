"""The receiver in `docs/receiving.md` works as it stands there."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deliveries import querying, signing
from deliveries.models import Said
from deliveries.transport.base import Headers
from deliveries.transport.single import Answer, fetch
from tests.transports import LOOPBACK

SECRET = signing.new_secret()
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "receiving.md"
OPERATION = "default/01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90/deliver/1"


@pytest.fixture
def receiver() -> Iterator[str]:
    """The URL of the documented receiver, serving."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "receiver"}
    for block in blocks:
        if "def " in block:
            exec(block.replace("whsec_…", SECRET), names)  # noqa: S102 - our own documentation
    names["Receiver"].log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), names["Receiver"]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(5)


def signed(body: bytes) -> Headers:
    now = int(time.time())
    return (
        ("webhook-id", "evt_1"),
        ("webhook-timestamp", str(now)),
        ("webhook-signature", signing.sign(signing.secret_bytes(SECRET), "evt_1", now, body)),
        ("idempotency-key", OPERATION),
    )


def send(method: str, url: str, body: bytes = b"") -> Answer:
    return fetch(method, url, signed(body), body=body, timeout_ms=5000, policy=LOOPBACK)


def test_the_documented_receiver_takes_deliveries_and_says_what_became_of_them(receiver: str) -> None:
    question = querying.url_of(receiver, operation=OPERATION, event="evt_1", run="r")
    before = querying.understood(send("GET", question), OPERATION)
    assert (before.said, before.status) == (Said.NEVER_ARRIVED, 200)

    assert send("POST", receiver, b'{"n": 1}').status == 204
    after = querying.understood(send("GET", question), OPERATION)
    assert (after.said, after.remote_id) == (Said.PROCESSED, "booking-1")
    assert json.loads(send("GET", question).body)["operation"] == OPERATION
