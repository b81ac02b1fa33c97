"""A sender that is stopped (SIGSTOP) at any moment: no answer that came in time is lost, nothing unsent arrives."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time

from deliveries.outcomes import ANSWERED, NOT_SENT
from tests.hostile.size import SOAK
from tests.hostile.stopped_sender import TIMEOUT_MS
from tests.support.sink import OK, Arrived, Sink

STOPS = 100 if SOAK else 10


class Hesitant(Sink):
    """Answers after up to one and a half times the sender's patience."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.answered: dict[int, float] = {}  # when the answer was with the kernel, monotonic seconds
        self._random = random.Random(seed)

    def take(self, request: Arrived, transport: asyncio.Transport) -> None:
        self.requests.append(request)
        delay = self._random.uniform(0, 1.5) * TIMEOUT_MS / 1000
        self._loop.call_later(delay, self._answer, int(request.event), transport)

    def _answer(self, key: int, transport: asyncio.Transport) -> None:
        if not transport.is_closing():
            transport.write(OK)
            self.answered[key] = time.monotonic()


def test_what_was_answered_in_time_is_heard_and_what_was_not_sent_never_arrives() -> None:
    moments = random.Random(7)
    with Hesitant(7) as receiver:
        sender = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.stopped_sender", receiver.url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            receiver.wait_for(50)
            for _ in range(STOPS):
                time.sleep(moments.uniform(0.02, 0.2))  # a moment, not a condition
                sender.send_signal(signal.SIGSTOP)
                time.sleep(moments.uniform(0.1, 2.0) * TIMEOUT_MS / 1000)
                sender.send_signal(signal.SIGCONT)
            said, _ = sender.communicate(timeout=30)
        finally:
            sender.kill()
            sender.wait(5)
        arrived = {int(request.event) for request in receiver.requests}
    outcomes = [line.split() for line in said.splitlines()]
    assert sender.returncode == 0
    in_time = 0
    for key, submitted, verdict in outcomes:
        # The deadline is counted from a little later than this.
        if receiver.answered.get(int(key), float("inf")) < float(submitted) + TIMEOUT_MS / 1000:
            in_time += 1
            assert verdict == ANSWERED
        assert verdict != NOT_SENT or int(key) not in arrived
    assert in_time > 50
    assert len({verdict for _, _, verdict in outcomes}) > 1  # and some were late
    assert len(arrived) == len(receiver.requests)
