"""A receiver that fails at random in every way that makes a sender try again, and remembers what arrived when."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from tests.receiver import Answer, Received, Receiver

WAYS = {
    "ok": 100, "500": 2, "503": 2, "404": 1, "reset_unread": 1, "reset": 2, "close": 2, "mid_head": 1, "hang": 1,
}  # fmt: skip
"""How often each way to answer is chosen, out of their sum."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """One complete request."""

    path: str
    operation_id: str
    attempt: int
    at: datetime


class Moody(Receiver):
    """What it does about a request is chosen by the seed, its operation and the attempt."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._answer, before_body=self._unread)
        self.seed = seed
        self.arrived: list[Arrived] = []
        self.ways: dict[str, int] = dict.fromkeys(WAYS, 0)
        self._lock = threading.Lock()

    def _way(self, received: Received) -> str:
        headers = received.headers
        dice = random.Random(f"{self.seed}/{headers['idempotency-key']}/{headers['relay-attempt']}")
        return dice.choices(list(WAYS), list(WAYS.values()))[0]

    def _unread(self, received: Received) -> Answer | None:
        if self._way(received) != "reset_unread":
            return None
        with self._lock:
            self.ways["reset_unread"] += 1
        return Answer(reset_before_answer=True)

    def _answer(self, received: Received) -> Answer:
        now, headers = datetime.now(UTC), received.headers
        way = self._way(received)
        with self._lock:
            self.ways[way] += 1
            self.arrived.append(
                Arrived(urlsplit(received.path).path, headers["idempotency-key"], int(headers["relay-attempt"]), now)
            )
        match way:
            case "ok":
                return Answer(200)
            case "reset":
                return Answer(reset_before_answer=True)
            case "close":
                return Answer(close_before_answer=True)
            case "mid_head":
                return Answer(raw=b"HTTP/1.1 200 OK\r\nContent-", close=True)
            case "hang":
                return Answer(hang=True)
            case status:
                return Answer(int(status))
