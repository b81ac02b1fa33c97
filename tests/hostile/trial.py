"""A program that sends to good receivers alone and then beside hostile ones, and says how it went.

`python -m tests.hostile.trial` reads a Plan as JSON from its input and prints a Report as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from deliveries.transport.base import Outcome
from deliveries.transport.curl import CurlTransport
from tests.transports import BODY, LOOPBACK, request

GOOD_EVERY_S = 0.004
GOOD_AT_ONCE = 64  # what is due and has to wait for this waits on the clock of its latency
SETTLED_S = 0.5  # after the last hostile request was begun
BEGUN_AT_ONCE = 20  # hostile requests between two looks at the others, as when deliveries are claimed in batches
LARGE = bytes(8_000_000)  # more than the kernel buffers for a receiver that does not read

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Plan(NamedTuple):
    """What to do: `hostile` are (name, URL, requests, body is LARGE); `rounds` of them all at once."""

    good: str
    hostile: list[tuple[str, str, int, bool]]
    timeout_ms: int
    alone_s: float
    rounds: int
    ca_file: str | None


class Ended(NamedTuple):
    """One hostile request."""

    name: str
    verdict: str
    status: int | None
    error: str
    elapsed_ms: int


class Phase(NamedTuple):
    """What happened.

    Latencies of good requests are seconds since each should have begun, sorted: `good` while the hostile ones were in
    flight, `rushed` while they were begun or ended. `in_flight` and the resident bytes `most` are the most at once;
    `before` are resident bytes at the beginning, `cpu_s` seconds of processor time.
    """

    good: list[float]
    rushed: list[float]
    good_failed: list[str]
    ended: list[Ended]
    in_flight: int
    before: int
    most: int
    cpu_s: float


class Sender:
    """One transport; good requests at a steady pace, hostile ones besides."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.transport = CurlTransport(LOOPBACK, ca_file=plan.ca_file, look_up=lambda host: ("127.0.0.1",))
        self._following = 0

    def phase(self, hostile: list[tuple[str, str, int, bool]], seconds: float) -> Phase:
        """At least for so long, and until every hostile request has ended."""
        begun = due = time.monotonic()
        waiting = deque((name, url, large) for name, url, count, large in hostile for _ in range(count))
        names: dict[int, str] = {}
        since: dict[int, float] = {}
        before = most = resident()
        looked = launched = begun
        in_flight = 0
        timed: list[tuple[float, float]] = []
        cpu = time.process_time()
        result = Phase([], [], [], [], 0, 0, 0, 0.0)
        while waiting or names or since or time.monotonic() < begun + seconds:
            now = time.monotonic()
            while due <= now and len(since) < GOOD_AT_ONCE:
                if waiting or names or now < begun + seconds:
                    since[self._submit(self.plan.good, 20_000, large=False)] = due
                due += GOOD_EVERY_S
            for _ in range(min(BEGUN_AT_ONCE, len(waiting))):
                name, url, large = waiting.popleft()
                names[self._submit(url, self.plan.timeout_ms, large=large)] = name
                launched = time.monotonic()
            in_flight = max(in_flight, len(names))
            for outcome in self.transport.poll(0.0 if waiting else max(due - time.monotonic(), 0.0)):
                self._note(outcome, names, since, timed, result)
            if now > looked + 0.05:
                looked = now
                most = max(most, resident())
        first_deadline = begun + self.plan.timeout_ms / 1000
        for due, latency in timed:
            steady = not hostile or launched + SETTLED_S < due < first_deadline
            (result.good if steady else result.rushed).append(latency)
        result.good.sort()
        result.rushed.sort()
        return result._replace(in_flight=in_flight, before=before, most=most, cpu_s=time.process_time() - cpu)

    def _submit(self, url: str, timeout_ms: int, *, large: bool) -> int:
        self._following += 1
        body = LARGE if large else BODY
        self.transport.submit(request(self._following, url, body, timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms))
        return self._following

    def _note(
        self,
        outcome: Outcome,
        names: dict[int, str],
        since: dict[int, float],
        timed: list[tuple[float, float]],
        result: Phase,
    ) -> None:
        if outcome.key in since:
            due = since.pop(outcome.key)
            timed.append((due, time.monotonic() - due))
            if outcome.http_status != 200 or outcome.error:
                result.good_failed.append(f"{outcome.verdict} {outcome.error}")
            return
        elapsed_ms = outcome.evidence.elapsed_ms
        result.ended.append(
            Ended(names.pop(outcome.key), outcome.verdict, outcome.http_status, outcome.error, elapsed_ms)
        )


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    plan = Plan(*json.load(sys.stdin))
    sender = Sender(plan)
    sender.phase([], 0.5)  # so that what is made once is made
    phases = [sender.phase([], plan.alone_s)]
    phases += [sender.phase(plan.hostile, 0.0) for _ in range(plan.rounds)]
    sender.transport.close()
    print(json.dumps(phases))


if __name__ == "__main__":
    main()
