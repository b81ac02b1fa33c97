"""What the client does when Relay refuses, stumbles, is away, or is not Relay at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.client import (
    Changed,
    Conflict,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    Relay,
    RelayError,
    Unauthorized,
    Unavailable,
    Unintelligible,
)
from relay.client import http as client_http
from tests.receiver import Answer, Receiver
from tests.support.sink import reserve

KEY = "rk_of-no-use-anywhere-1234567890"
JSON = ("Content-Type", "application/json")
SENT = Answer(202, (JSON,), json.dumps({"id": "evt_1", "deliveries": 2, "later": "unknown"}).encode())
DELIVERY = "dlv_" + "0" * 32


def refusal(status: int, code: str = "x", *headers: tuple[str, str], **more: Any) -> Answer:
    content = {"code": code, "detail": "Because.", **more}
    return Answer(status, (JSON, *headers), json.dumps(content).encode())


def client(receiver: Receiver, **how: Any) -> Relay:
    return Relay(url=receiver.url, key=KEY, **how)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_http, "FIRST_PAUSE_S", 0.001)


def test_a_submission_is_repeated_under_one_key_until_it_is_answered() -> None:
    with Receiver() as receiver, client(receiver) as relay:
        receiver.answers.extend(
            [refusal(503), Answer(reset_before_answer=True), refusal(429, "x", ("Retry-After", "0")), SENT]
        )
        sent = relay.send("invoice.paid", {"n": 1})
        assert (sent.id, sent.deliveries, sent.replayed) == ("evt_1", 2, False)
        keys = {request.headers["idempotency-key"] for request in receiver.requests}
        assert len(receiver.requests) == 4
        assert len(keys) == 1
        assert len({request.body for request in receiver.requests}) == 1
        relay_again = client(receiver)
        receiver.answers.append(SENT)
        relay_again.send("invoice.paid", {"n": 1})
        assert receiver.requests[-1].headers["idempotency-key"] not in keys


def test_repetitions_end() -> None:
    with Receiver(lambda _: refusal(503)) as receiver, client(receiver, retries=2) as relay:
        with pytest.raises(Unavailable, match="Because"):
            relay.send("a", 1)
        assert len(receiver.requests) == 3


ONCE: list[Callable[[Relay], Any]] = [
    lambda relay: relay.cancel(DELIVERY),
    lambda relay: relay.replay(DELIVERY),
    lambda relay: relay.replay("evt_1"),
    lambda relay: relay.resolve("a/b/c/1", "failed", "x", revision=1),
    lambda relay: relay.query("a/b/c/1"),
    lambda relay: relay.endpoints.create("https://example.com/"),
    lambda relay: relay.endpoints.update("ep_1", enabled=False),
    lambda relay: relay.endpoints.delete("ep_1"),
    lambda relay: relay.keys.create("x", ["read"]),
    lambda relay: relay.keys.rotate("key_1"),
    lambda relay: relay.cancel_job("job_1"),
]


@pytest.mark.parametrize("act", ONCE)
@pytest.mark.parametrize("answer", [refusal(503), refusal(429), Answer(close_before_answer=True)])
def test_what_is_not_safe_is_never_repeated(act: Callable[[Relay], Any], answer: Answer) -> None:
    with Receiver(lambda _: answer) as receiver, client(receiver) as relay:
        with pytest.raises(Unavailable):
            act(relay)
        assert len(receiver.requests) == 1


def test_a_wish_for_a_pause_is_kept_and_a_long_one_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("relay.client.http.time.sleep", pauses.append)
    with Receiver() as receiver, client(receiver) as relay:
        receiver.answers.extend([refusal(503, "x", ("Retry-After", "7")), SENT])
        relay.send("a", 1)
        assert pauses == [7.0]
        receiver.answers.append(refusal(503, "x", ("Retry-After", "3600")))
        with pytest.raises(Unavailable) as refused:
            relay.send("a", 1)
        assert refused.value.retry_after == 3600
        assert len(receiver.requests) == 3


def test_an_answer_that_does_not_come_in_time_is_unavailable() -> None:
    with Receiver(lambda _: Answer(hang=True)) as receiver, client(receiver, timeout=0.2, retries=0) as relay:
        started = time.monotonic()
        with pytest.raises(Unavailable, match="no answer in time"):
            relay.event("evt_1")
        assert time.monotonic() - started < 10


def test_where_nobody_listens_is_one_sentence() -> None:
    with reserve() as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Relay(url=url, key=KEY, retries=1) as relay, pytest.raises(Unavailable) as refused:
        relay.event("evt_1")
    assert str(refused.value) == f"Cannot reach {url}: connection refused."
    assert refused.value.status is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid), (401, Unauthorized), (403, Forbidden), (404, NotFound), (409, Conflict), (412, Changed),
        (413, Invalid), (415, Invalid), (422, Invalid), (500, RelayError), (503, Unavailable),
    ],
)  # fmt: skip
def test_each_refusal_is_an_error_with_all_that_was_said(status: int, kind: type[RelayError]) -> None:
    answer = refusal(
        status, "a_code", errors=[{"field": "url", "detail": "is required", "more": 1}], current={"status": "failed"}
    )
    with Receiver(lambda _: answer) as receiver, client(receiver, retries=0) as relay:
        with pytest.raises(RelayError) as refused:
            relay.cancel(DELIVERY)
        error = refused.value
        assert type(error) is kind
        assert (error.status, error.code, error.detail) == (status, "a_code", "Because.")
        assert [(one.field, one.detail) for one in error.errors] == [("url", "is required")]
        assert error.current == {"status": "failed"}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, (("Content-Type", "text/html"),), b"<html>"),
        Answer(404, (("Content-Type", "text/html"),), b"<html>"),
        Answer(200, (JSON,), b"[]"),
        Answer(200, (JSON,), b'{"id": 7}'),
        Answer(302, (("Location", "https://elsewhere.example/x?secret"),)),
    ],
)
def test_what_does_not_answer_as_relay_does_is_said_so(answer: Answer) -> None:
    with Receiver(lambda _: answer) as receiver, client(receiver) as relay:
        with pytest.raises(Unintelligible) as refused:
            relay.event("evt_1")
        assert len(receiver.requests) == 1
        assert "secret" not in str(refused.value)


def test_no_netrc_takes_the_place_of_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with Receiver(lambda _: SENT) as receiver, client(receiver, tenant="acme") as relay:
        relay.send("a", 1)
        assert receiver.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert receiver.requests[0].headers["relay-tenant"] == "acme"


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver(lambda _: SENT) as receiver:
        monkeypatch.setenv("RELAY_URL", receiver.url + "v1/")
        monkeypatch.setenv("RELAY_KEY", KEY)
        monkeypatch.setenv("RELAY_TENANT", "acme")
        with Relay() as relay:
            relay.send("a", 1)
        assert receiver.requests[0].path == "/v1/events"
        assert receiver.requests[0].headers["relay-tenant"] == "acme"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"key": ""}, "no key"),
        ({"key": "rk_secret\nX: y"}, "characters that no key has"),
        ({"key": "rk_secret\u00e9"}, "characters that no key has"),
        ({"url": "relay.example"}, "must be like https"),
        ({"url": "ftp://relay.example"}, "must be like https"),
        ({"url": "http://[::1"}, "must be like https"),
        ({"url": "http://relay.example:99999"}, "must be like https"),
        ({"url": "https://me:rk_secret@relay.example"}, "holds a name or a password"),
        ({"tenant": "No Tenant"}, "can be called"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    given: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELAY_KEY", raising=False)
    with pytest.raises(Misconfigured, match=why) as refused:
        Relay(**{"url": "https://relay.example", "key": KEY, **given})  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


def test_no_repr_shows_the_key() -> None:
    relay = Relay(url="https://relay.example", key=KEY)
    for one in (relay, relay.endpoints, relay.keys, relay.tenants, relay.event_types, relay._http):
        assert KEY not in repr(one)


@pytest.mark.parametrize("data", [float("nan"), {"x": {1, 2}}, "\ud800", b"{", b"1 2", b'{"a":1}, "type":"b"', b"\xff"])
def test_data_that_json_cannot_say_is_not_sent(data: Any) -> None:
    with Receiver(lambda _: SENT) as receiver, client(receiver) as relay:
        with pytest.raises(ValueError, match="data"):
            relay.send("a", data)
        assert receiver.requests == []


def test_bytes_go_out_as_they_are() -> None:
    data = b'{"amount": 1.10,\n "name": "caf\xc3\xa9 \\u00e9"}'
    with Receiver(lambda _: SENT) as receiver, client(receiver) as relay:
        relay.send("a", data)
        assert data in receiver.requests[0].body


def test_a_batch_that_is_too_large_for_the_server_is_sent_in_halves() -> None:
    def answer(received: Any) -> Answer:
        lines = received.body.splitlines()
        if len(lines) > 3:
            return refusal(413)
        items = [
            {"index": at, "status": 202, "id": json.loads(line)["id"], "deliveries": 0} for at, line in enumerate(lines)
        ]
        return Answer(200, (JSON,), json.dumps({"items": items[::-1], "accepted": len(items), "refused": 0}).encode())

    with Receiver(answer) as receiver, client(receiver) as relay:
        results = relay.send_batch({"type": "a", "data": n, "id": f"e{n}"} for n in range(10))
        assert [(one.index, one.id) for one in results] == [(n, f"e{n}") for n in range(10)]
        assert receiver.requests[0].headers["content-type"] == "application/x-ndjson"


def test_a_batch_that_breaks_off_tells_what_is_accepted() -> None:
    def answer(received: Any) -> Answer:
        lines = received.body.splitlines()
        if len(lines) < 1_000:
            return refusal(401)
        items = [{"index": at, "status": 202, "id": f"e{at}", "deliveries": 0} for at in range(len(lines))]
        return Answer(200, (JSON,), json.dumps({"items": items}).encode())

    with Receiver(answer) as receiver, client(receiver) as relay:
        with pytest.raises(Unauthorized) as broken:
            relay.send_batch({"type": "a", "data": n} for n in range(1_001))
        assert len(broken.value.content["results"]) == 1_000
        keys = [json.loads(line)["idempotency_key"] for line in receiver.requests[0].body.splitlines()]
        assert len(set(keys)) == 1_000
