"""A receiver that verifies every request with a public library under the one secret that it holds at that moment."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from standardwebhooks import Webhook, WebhookVerificationError

from tests.receiver import Answer, Received, Receiver


class Verifier:
    """It verifies at the end of what it has to do: after up to `slow_s`, with the secret that it holds then. About
    every `hangs`-th request is verified at once and never answered. `refused` lists what it could not verify, as a
    sentence each."""

    def __init__(self, seed: int, *, slow_s: float = 0.0, hangs: int | None = None) -> None:
        self.refused: list[str] = []
        self.verified = 0
        self._secret = ""
        self._random = random.Random(seed)
        self._slow_s, self._hangs = slow_s, hangs
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._receiver = Receiver(self._answer)

    def __enter__(self) -> Self:
        self._receiver.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._receiver.__exit__(kind, error, trace)

    @property
    def url(self) -> str:
        return self._receiver.url

    def hold(self, secret: str) -> None:
        """From now on it holds this secret and no other."""
        with self._turn:
            self._secret = secret

    def _answer(self, received: Received) -> Answer:
        with self._turn:
            hangs = self._hangs is not None and self._random.randrange(self._hangs) == 0
            slow_s = self._random.random() ** 3 * self._slow_s
        if not hangs:
            self._stopping.wait(slow_s)
        with self._turn:
            try:
                Webhook(self._secret).verify(received.body, received.headers)
                self.verified += 1
            except WebhookVerificationError as wrong:
                count = received.headers["webhook-signature"].count(",")
                self.refused.append(f"{received.headers['webhook-id']}, with {count} signatures: {wrong}")
        return Answer(hang=hangs)
