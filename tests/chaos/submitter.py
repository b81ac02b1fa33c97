"""A producer that never gives up: it submits with idempotency keys and keeps its own list of what got 202."""

from __future__ import annotations

import json
import random
import threading
import time

import requests

PRODUCERS = 2
EVERY_S = 0.22


class Submitter:
    """Submits from a few threads until `finish`, which waits until every event that was begun has its answer."""

    def __init__(self, url: str, key: str, seed: int) -> None:
        self.url = f"{url}/v1/events"
        self.headers = {"Authorization": f"Bearer {key}"}
        self.seed = seed
        self.accepted: dict[str, str] = {}
        """The event's id by its idempotency key."""
        self.complaints: list[str] = []
        self.retries = 0
        self.unanswered: set[str] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._giving_up = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(PRODUCERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, seconds: float) -> None:
        """Begin no more, and wait for the answers; `unanswered` holds the keys of those that got none in time."""
        self._ending.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._giving_up.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, producer: int) -> None:
        number = producer
        with requests.Session() as session:
            while not self._ending.wait(EVERY_S):
                self._submit(session, number)
                if random.Random(f"{self.seed}/again/{number}").random() < 0.1:
                    self._submit(session, number)  # the same once more: it must be the same event
                number += PRODUCERS

    def _submit(self, session: requests.Session, number: int) -> None:
        dice = random.Random(f"{self.seed}/event/{number}")
        size = dice.choice([40_000, 200_000]) if dice.random() < 0.06 else dice.randrange(400)
        kind = "rare" if dice.random() < 0.15 else "common"
        key = f"{self.seed}-{number}"
        # The number comes first and has eight digits: the receiver's seed looks for it there.
        data = f'{{"n":{10_000_000 + number},"pad":"{"x" * size}"}}'
        body = f'{{"type":"{kind}","data":{data}}}'.encode()
        self.unanswered.add(key)
        while not self._giving_up.is_set():
            try:
                answer = session.post(self.url, data=body, headers={**self.headers, "Idempotency-Key": key}, timeout=5)
            except requests.RequestException:
                self._pause()
                continue
            if answer.status_code >= 500:
                self._pause()
                continue
            self._answered(key, answer)
            return

    def _answered(self, key: str, answer: requests.Response) -> None:
        with self._lock:
            self.unanswered.discard(key)
            if answer.status_code != 202:
                self.complaints.append(f"{key} got {answer.status_code}: {answer.text[:200]}")
                return
            event_id = json.loads(answer.content)["id"]
            if self.accepted.setdefault(key, event_id) != event_id:
                self.complaints.append(f"{key} was accepted as {self.accepted[key]} and as {event_id}")

    def _pause(self) -> None:
        with self._lock:
            self.retries += 1
        self._giving_up.wait(0.2)
