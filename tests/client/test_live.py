"""Commands that watch and receive, with a consumer that delivers: `listen`, `tail`, `recover`, `verify`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest

from deliveries import signing
from relay.client import Relay
from relay.client.results import DeliveryItem
from tests.api.rows import Caller
from tests.client.conftest import Type
from tests.client.test_webhooks import BODY, signed
from tests.receiver import Answer, Receiver
from tests.support.consumer import Consumer
from tests.support.waiting import wait_until
from tests.support.web import Web

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SECONDS = 30.0


class Running:
    """A command that goes on until it is stopped; its lines as they come."""

    def __init__(self, web: Web, key: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "relay", *words],
            cwd=BASE_DIR,
            env={**os.environ, "RELAY_URL": web.url, "RELAY_KEY": key, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: IO[str], lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    def wait_for(self, what: str, lines: list[str]) -> str:
        """The first line that holds `what`."""

        def found() -> str | None:
            assert self.process.poll() is None or any(what in line for line in lines), (self.out, self.err)
            return next((line for line in list(lines) if what in line), None)

        return str(wait_until(found, SECONDS, f"a line with {what!r} among {lines}"))

    def close(self) -> None:
        """Nothing is left of it."""
        self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def stop(self, signum: signal.Signals = signal.SIGINT) -> int:
        """Its exit status after the signal."""
        self.process.send_signal(signum)
        status = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        assert "Traceback" not in "".join(self.err)
        return status


@contextlib.contextmanager
def running(web: Web, key: str, *words: str) -> Iterator[Running]:
    command = Running(web, key, *words)
    try:
        yield command
    finally:
        command.process.kill()
        command.close()


@pytest.fixture(scope="module")
def consumer(web: Web) -> Iterator[Consumer]:
    with Consumer(dispatchers=1) as running_one:
        yield running_one


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("kind", [(), ("--public-key",)], ids=["v1", "v1a"])
def test_listen_makes_its_endpoint_shows_what_arrives_and_disables_it(
    web: Web, consumer: Consumer, relay: Relay, key: str, port: int, kind: tuple[str, ...]
) -> None:
    made: set[str] = set()
    for turn in range(2):
        with running(web, key, "listen", str(port), *kind) as command:
            command.wait_for("Listening on", command.err)
            (endpoint,) = relay.endpoints.list()
            assert endpoint.enabled
            made.add(endpoint.id)
            sent = relay.send("invoice.paid", {"turn": turn, "evil": "\x1b[31m"}, id=f"turn-{turn}")
            line = command.wait_for(sent.id, command.out)
            assert "signature good" in line
            assert "\x1b" not in "".join(command.out)
            wait_until(
                lambda: [one.status for one in relay.event_deliveries(f"turn-{turn}")] == ["delivered"],  # noqa: B023
                SECONDS,
                "it is delivered",
            )
            assert command.stop([signal.SIGINT, signal.SIGTERM][turn]) == 0
        assert not relay.endpoints.get(endpoint.id).enabled
        assert "Its endpoint is disabled" in command.err[-1]
    assert len(made) == 1  # the second turn took the first one's


def test_listen_refuses_what_somebody_else_sends(web: Web, key: str, port: int) -> None:
    secret = signing.new_secret()
    with running(web, "", "listen", str(port), "--secret", secret, "--json") as command:
        command.wait_for("Listening on", command.err)
        for headers, status in ((signed(secret), 204), (signed(signing.new_secret()), 400), ({}, 400)):
            assert _post(port, headers) == status
        command.wait_for('"problem":"it is not signed"', command.out)
        assert command.stop() == 0
    shown = [json.loads(line) for line in command.out]
    assert [one["verified"] for one in shown] == [True, False, False]
    assert shown[0]["body"] == BODY.decode()


def test_listen_on_a_port_that_is_taken_is_one_sentence(typed: Type, relay: Relay) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = typed("listen", str(taken.getsockname()[1]))
    assert said.status == 1
    assert "Cannot listen on 127.0.0.1 port" in said.err
    assert list(relay.endpoints.list()) == []


def test_tail_shows_each_new_delivery_and_each_change(web: Web, consumer: Consumer, relay: Relay, key: str) -> None:
    with Receiver() as receiver:
        receiver.answers.extend([Answer(200), Answer(500), Answer(200)])
        endpoint = relay.endpoints.create(receiver.url, retry={"schedule": [2], "jitter": 0.0})
        before = relay.send("a", 0)
        wait_until(lambda: status(relay, before.id) == "delivered", SECONDS, "the first one is delivered")
        with running(web, key, "tail", "--json", "--every", "0.1") as command:
            command.wait_for(before.id, command.out)
            sent = relay.send("a", 1)
            # An answer of 500 does not say whether the event was taken.
            wait_until(lambda: '"status":"delivered"' in command.out[-1] and len(command.out) > 2, SECONDS, "its end")
            assert command.stop() == 0
    lines = [json.loads(line) for line in command.out]
    steps = [(one["was"], one["status"]) for one in lines if one["event_id"] == sent.id]
    assert (steps[0][0], steps[-1][1]) == (None, "delivered")
    assert [now for _, now in steps[:-1]] == [was for was, _ in steps[1:]]
    assert "unknown" in [now for _, now in steps]
    assert {one["endpoint_id"] for one in lines} == {endpoint.id}


def test_tail_of_one_endpoint_and_status_for_people(web: Web, relay: Relay, key: str, caller: Caller) -> None:
    mine = relay.endpoints.create("http://127.0.0.1:9/", types=["mine"])
    relay.endpoints.create("http://127.0.0.1:9/", types=["other"])
    with running(web, key, "tail", "--endpoint", mine.id, "--status", "cancelled", "--every", "0.1") as command:
        relay.send("other", 1)
        sent = relay.send("mine", 1, deliver_at=datetime.now(UTC) + timedelta(hours=1))
        (delivery,) = relay.event_deliveries(sent.id)
        # Only once it was seen as it is can its change be one.
        relay.cancel(delivery.id)
        line = command.wait_for(delivery.id, command.out)
        assert command.stop(signal.SIGTERM) == 0
    assert "cancelled" in line
    assert len(command.out) == 1


def test_tail_goes_on_when_relay_was_away(web: Web, relay: Relay, key: str) -> None:
    """Through a door that can be shut."""
    empty = Answer(200, (("Content-Type", "application/json"),), b'{"items": [], "next_cursor": null}')
    away = Answer(
        503, (("Content-Type", "application/json"), ("Retry-After", "60")), b'{"code": "x", "detail": "Away."}'
    )
    with Receiver(lambda _: empty) as receiver:
        receiver.answers.extend([empty, away, away])
        with running(web, key, "tail", "--url", receiver.url, "--every", "0.1") as command:
            receiver.wait_for(6)
            assert command.stop() == 0
    assert len(command.err) == 1
    assert "Away. Try again in 60 s. Still trying." in command.err[0]


def test_recover_counts_asks_and_replays_what_failed(
    consumer: Consumer, relay: Relay, typed: Type, caller: Caller
) -> None:
    with Receiver(lambda _: Answer(400)) as receiver:
        endpoint = relay.endpoints.create(receiver.url, retry={"schedule": []}).id
        relay.send_batch({"type": "a", "data": n} for n in range(5))
        wait_until(lambda: failed(relay, endpoint) == 5, SECONDS, "all have failed")
        dry = typed("recover", endpoint, "--since", "1h", "--dry-run")
        assert (dry.status, dry.out) == (0, "5 deliveries would be replayed.\n"), dry.said
        refused = typed("recover", endpoint, "--since", "1h", answer="n\n")
        assert refused.status == 1
        assert "Replay 5 deliveries" in refused.err
        assert len(receiver.requests) == 5
        receiver.answer = lambda _: Answer(200)
        done = typed("recover", endpoint, "--since", "1h", "--per-second", "100", answer="y\n")
        assert (done.status, done.out) == (0, "5 replayed.\n"), done.said
        assert "relay jobs cancel job_" in done.err
        wait_until(lambda: failed(relay, endpoint) == 0, SECONDS, "they are sent again")
        receiver.wait_for(10)
        nothing = typed("recover", "all", "--since", "1h", "--yes", "--json")
        assert (nothing.status, nothing.document["matched"]) == (0, 0)


def status(relay: Relay, event_id: str) -> str:
    return next(one.status for one in relay.event_deliveries(event_id))


def failed(relay: Relay, endpoint_id: str) -> int:
    found: list[DeliveryItem] = list(relay.deliveries(endpoint_id=endpoint_id, status="failed"))
    return len(found)


def test_verify_checks_a_saved_request(typed: Type, tmp_path: Path) -> None:
    secret = signing.new_secret()
    file = tmp_path / "body"
    file.write_bytes(BODY)
    headers = _options(signed(secret))
    good = typed("verify", f"@{file}", *headers, "--secret", secret, RELAY_KEY="")
    assert (good.status, good.out.split(":")[0]) == (0, "The signature is good"), good.said
    wrong = typed("verify", f"@{file}", *headers, "--secret", signing.new_secret())
    assert (wrong.status, wrong.err) == (1, "relay: Not to be trusted: its signature is wrong.\n")
    file.write_bytes(BODY + b"\n")
    edited = typed("verify", f"@{file}", *headers, RELAY_WEBHOOK_SECRET=secret)
    assert edited.status == 1
    assert "Without the line feed at its end it is" in edited.err
    old = _options(signed(secret, at=1_700_000_000))
    aged = typed("verify", "-", *old, "--secret", secret, answer=BODY)
    assert aged.status == 0
    assert "A receiver would refuse it by now" in aged.out
    assert typed("verify", "-", *old, "--secret", secret, "--tolerance", "300", answer=BODY).status == 1
    pair = signing.new_secret(signing.Signature.V1A)
    public = str(signing.key_of(pair).public)
    shown = typed("verify", "-", *_options(signed(pair)), "--secret", public, "--json", answer=BODY).document
    assert (shown["verified"], shown["type"]) == (True, "invoice.paid")


def _options(headers: dict[str, str]) -> list[str]:
    return [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]


def _post(port: int, headers: dict[str, str]) -> int:
    import http.client as plain

    connection: Any = plain.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/", BODY, headers)
        return int(connection.getresponse().status)
