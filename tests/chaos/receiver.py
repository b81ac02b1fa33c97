"""A receiver with every misbehaviour, one for each request by the seed, which keeps its own exact record.

What it does about a request is decided by the seed, the endpoint, the number in the payload and the attempt, so the
same seed misbehaves alike. Limit: which attempts there are depends on the faults' timing.
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from tests.history.wire import Arrival
from tests.receiver import Received, Receiver, _Ended, _parse, _receive, _reset_on_close

HANG_S = 4.0
WAYS = {
    "ok": 50, "slow": 5, "500": 6, "503": 3, "404": 3, "hang": 3, "close": 4, "mid_head": 3, "garbage": 3,
    "reset": 3, "reset_mid_body": 4, "drip": 3, "early": 4,
}  # fmt: skip
"""How often each way to answer is chosen, out of their sum."""
REFUSED = frozenset({"503", "404", "410"})
"""The ways in which the receiver says that it did not take it."""


@dataclass(slots=True)
class Record:
    """One complete request. `answered`: the status whose complete head was written; `acted`: whether it took it."""

    endpoint: str
    operation_id: str
    run_id: str
    attempt: int
    epoch: int
    webhook_id: str
    body_sha256: str
    way: str
    acted: bool
    at: datetime
    answered: int | None = None
    complete: bool = False

    def arrival(self) -> Arrival:
        return Arrival(self.operation_id, self.attempt, self.epoch, self.webhook_id, self.answered, self.at)


class ChaosReceiver(Receiver):
    """Endpoints are paths: /hook/NAME takes deliveries, /ask/NAME tells truthfully what became of an operation."""

    def __init__(self, seed: int, silent: Callable[[Record], None]) -> None:
        super().__init__(receive_buffer=16_384)
        self.seed = seed
        self.silent = silent
        """Called about a request that was taken and got no answer: the receiver may acknowledge it later."""
        self.healed = False
        self.records: list[Record] = []
        self.ways: dict[str, int] = dict.fromkeys([*WAYS, "410"], 0)
        self.questions = 0
        self._lock = threading.Lock()

    def _way(self, name: str, headers: dict[str, str]) -> tuple[str, random.Random]:
        dice = random.Random(f"{self.seed}/{name}/{headers.get('x-number', '')}/{headers['relay-attempt']}")
        if self.healed:
            return "ok", dice
        if name == "gone" and dice.random() < 0.03:
            return "410", dice
        return dice.choices(list(WAYS), list(WAYS.values()))[0], dice

    def _converse(self, connection: socket.socket, number: int) -> None:
        buffered = b""
        while not self._stopping.is_set():
            while b"\r\n\r\n" not in buffered:
                buffered += _receive(connection)
            head, _, buffered = buffered.partition(b"\r\n\r\n")
            received = _parse(head, number, 0)
            if received.method == "GET":
                self._answer_question(connection, received)
                continue
            buffered = self._take(connection, received, buffered)

    def _take(self, connection: socket.socket, received: Received, buffered: bytes) -> bytes:
        """One delivery; what is left over of the next request."""
        name, headers = urlsplit(received.path).path.rsplit("/", 1)[1], received.headers
        length = int(headers["content-length"])
        # The number is in the body's first bytes: without them the seed cannot choose.
        while len(buffered) < min(length, 24):
            buffered += _receive(connection)
        headers["x-number"] = buffered[:24].split(b":", 1)[1].split(b",", 1)[0].decode()
        way, dice = self._way(name, headers)
        self.ways[way] += 1
        if way == "reset_mid_body" and length > 20_000:
            while len(buffered) < length // 2:
                buffered += _receive(connection)
            _reset_on_close(connection)
            raise _Ended
        if way == "early":
            connection.sendall(OK)
        while len(buffered) < length:
            buffered += _receive(connection)
        body, rest = buffered[:length], buffered[length:]
        acted = way not in REFUSED and (way != "500" or dice.random() < 0.5)
        record = Record(
            endpoint=name, operation_id=headers["idempotency-key"], run_id=headers["relay-run-id"],
            attempt=int(headers["relay-attempt"]), epoch=int(headers["relay-epoch"]), webhook_id=headers["webhook-id"],
            body_sha256=hashlib.sha256(body).hexdigest(), way=way, acted=acted, at=datetime.now(UTC),
        )  # fmt: skip
        with self._lock:
            self.records.append(record)
        self._say(connection, record)
        return rest

    def _say(self, connection: socket.socket, record: Record) -> None:
        match record.way:
            case "early":
                record.answered, record.complete = 200, True
            case "ok" | "slow" | "500" | "503" | "404" | "410":
                if record.way == "slow":
                    self._stopping.wait(0.5)
                status = 200 if record.way in ("ok", "slow") else int(record.way)
                # Before it is written, since whoever reads it may write it down before we come back.
                record.answered = status
                connection.sendall(_response(status))
                record.complete = True
            case "drip":
                self._drip(connection, record)
            case _:
                self._break_off(connection, record)

    def _break_off(self, connection: socket.socket, record: Record) -> None:
        self.silent(record)
        if record.way == "hang":
            self._stopping.wait(HANG_S)
        elif record.way == "mid_head":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-")
        elif record.way == "garbage":
            connection.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
        elif record.way in ("reset", "reset_mid_body"):
            _reset_on_close(connection)
        raise _Ended

    def _drip(self, connection: socket.socket, record: Record) -> None:
        head, pause = OK, 0.01 if record.attempt % 2 else 0.1
        for at in range(len(head)):
            if at == len(head) - 1:
                record.answered = 200
            connection.sendall(head[at : at + 1])
            if self._stopping.wait(pause):
                raise _Ended
        record.complete = True

    def _answer_question(self, connection: socket.socket, received: Received) -> None:
        wanted = json.loads(received.headers["relay-question"])["operation"]
        with self._lock:
            self.questions += 1
            acted = any(one.acted for one in self.records if one.operation_id == wanted)
        body = json.dumps({"outcome": "processed" if acted else "never_arrived"}).encode()
        connection.sendall(_response(200, body))


def _response(status: int, body: bytes = b"") -> bytes:
    retry = "Retry-After: 1\r\n" if status == 503 else ""
    return f"HTTP/1.1 {status} Scripted\r\n{retry}Content-Length: {len(body)}\r\n\r\n".encode() + body


OK = _response(200)


class Acknowledger:
    """Sends, some seconds later, a signed acknowledgement for some of what was taken without an answer."""

    def __init__(self, seed: int, send: Callable[[Record], bool]) -> None:
        self.seed = seed
        self.send = send
        self.waiting: list[tuple[float, Record]] = []
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(20)

    def about(self, record: Record) -> None:
        dice = random.Random(f"{self.seed}/ack/{record.endpoint}/{record.body_sha256}/{record.attempt}")
        if record.endpoint in ("both", "neither_acks") and dice.random() < 0.5:
            self.waiting.append((time.monotonic() + dice.uniform(1, 6), record))

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            due = [one for one in list(self.waiting) if one[0] <= time.monotonic()]
            for one in due:
                self.waiting.remove(one)
                if self.send(one[1]):
                    self.sent += 1
                else:
                    self.waiting.append((time.monotonic() + 1, one[1]))
