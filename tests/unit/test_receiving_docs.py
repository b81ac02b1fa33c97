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
from standardwebhooks import Webhook

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


def deliver(url: str, body: bytes) -> Answer:
    now = int(time.time())
    headers: Headers = (
        ("webhook-id", "evt_1"),
        ("webhook-timestamp", str(now)),
        ("webhook-signature", signing.sign(signing.secret_bytes(SECRET), "evt_1", now, body)),
        ("idempotency-key", OPERATION),
    )
    return fetch("POST", url, headers, body=body, timeout_ms=5000, policy=LOOPBACK)


def ask(url: str, operation: str = OPERATION, **changed: str) -> Answer:
    """Ask as Relay does; `changed` are headers that somebody changed on the way."""
    headers = dict(querying._signed({"operation": operation}, (signing.key_of(SECRET),), int(time.time())))
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return fetch("GET", url, tuple(headers.items()), timeout_ms=5000, policy=LOOPBACK)


def test_the_documented_receiver_takes_deliveries_and_says_what_became_of_them(receiver: str) -> None:
    before = querying.understood(ask(receiver), OPERATION)
    assert (before.said, before.status) == (Said.NEVER_ARRIVED, 200)

    assert deliver(receiver, b'{"n": 1}').status == 204
    after = querying.understood(ask(receiver), OPERATION)
    assert (after.said, after.remote_id) == (Said.PROCESSED, "booking-1")
    assert json.loads(ask(receiver).body)["operation"] == OPERATION


def test_the_documented_receiver_tells_what_was_signed_and_nothing_else(receiver: str) -> None:
    assert deliver(receiver, b'{"n": 1}').status == 204
    other = OPERATION.replace("/1", "/2")
    url = querying.url_of(receiver, operation=OPERATION, event="evt_1", run="r")
    assert json.loads(ask(url, other).body) == {"operation": other, "outcome": "never_arrived"}
    assert ask(receiver, other, relay_question=json.dumps({"operation": OPERATION})).status is None


def test_the_documented_lines_verify_a_question_with_the_public_library() -> None:
    headers = dict(querying._signed({"operation": OPERATION}, (signing.key_of(SECRET),), int(time.time())))
    names: dict[str, Any] = {"headers": headers, "Webhook": Webhook}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        if "def key_for" in block or "question = " in block:
            exec(block.replace("whsec_…", SECRET), names)  # noqa: S102 - our own documentation
    assert names["operation"] == OPERATION


def documented(function: str) -> Any:
    """A function as it stands there."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        if f"def {function}(" in block:
            exec(block, names)  # noqa: S102 - our own documentation
    return names[function]


def test_the_documented_lines_for_public_keys_verify_deliveries_and_questions_and_nothing_else() -> None:
    verify = documented("verify_public")
    key, other = (signing.key_of(signing.new_secret(signing.Signature.V1A)) for _ in range(2))
    shared, body, now = signing.key_of(SECRET), '{"name":"žluťoučký"}'.encode(), int(time.time())
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(now)}
    headers["webhook-signature"] = signing.sign_with_each((shared, other, key), "evt_1", now, body)
    verify(key.public, headers, body)
    verify(other.public, headers, body)
    for public, changed in ((key.for_questions().public, body), (key.public, body + b" ")):
        with pytest.raises(ValueError, match="not signed"):
            verify(public, headers, changed)
    headers["webhook-timestamp"] = str(now - 400)
    headers["webhook-signature"] = key.sign("evt_1", now - 400, body)
    with pytest.raises(ValueError, match="too old"):
        verify(key.public, headers, body)
    question = dict(querying._signed({"operation": OPERATION}, (key,), now))
    verify(key.for_questions().public, question, question["relay-question"].encode())
    with pytest.raises(ValueError, match="not signed"):
        verify(key.public, question, question["relay-question"].encode())


def test_the_documented_key_for_acknowledgements_of_a_pair_is_the_one_that_relay_takes() -> None:
    secret = signing.new_secret(signing.Signature.V1A)
    made = documented("key_for_acknowledgements")(secret)
    assert signing.secret_bytes(made) == signing.key_of(secret).derived(signing.ACKNOWLEDGEMENT)
