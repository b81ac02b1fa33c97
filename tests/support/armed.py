"""A consumer one of whose workers will die or stand still at a named point, and a receiver that keeps a record."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import psutil

from deliveries.failpoints import Action, Failpoint, Point
from tests.support.consumer import Consumer
from tests.support.sink import Arrived, Sink
from tests.support.waiting import wait_until

_FAILED = re.compile(r"failpoint \S+: process (\d+) gets SIG")
NEVER_MS = str(86_400_000)
FAILS_S = 20.0


class ArmedConsumer(Consumer):
    """One dispatcher, which fails at the point; ready when it works, or has failed already.

    It sweeps once, at its start, so that what it leaves behind is found by others.
    """

    arguments = ("--no-periodic",)

    def __init__(self, point: Point, action: Action, passing: int = 1, **environment: str) -> None:
        self.failpoint = Failpoint(point, action, passing)
        super().__init__(
            dispatchers=1, **{"RELAY_FAILPOINT": str(self.failpoint), "RELAY_SWEEP_MS": NEVER_MS, **environment}
        )

    def ready(self) -> bool:
        return self.failed() is not None or super().ready()

    def failed(self) -> int | None:
        """The pid of the first worker that failed, once it is dead or stands still."""
        found = _FAILED.search(self.said())
        if found is None:
            return None
        pid = int(found[1])
        with contextlib.suppress(psutil.NoSuchProcess):
            status = psutil.Process(pid).status()
            stopped = status == psutil.STATUS_STOPPED
            if not stopped and (self.failpoint.action is Action.STOP or status != psutil.STATUS_ZOMBIE):
                return None
        return pid

    def wait_until_failed(self) -> int:
        """Wait for it, and give the pid of the worker."""
        pid = wait_until(self.failed, FAILS_S, f"a worker failed at {self.failpoint}")
        assert pid is not None
        return pid


class RecordingSink(Sink):
    """A receiver with a record of its own: it acts once on each operation, and tells what it knows when it is asked.

    `effects` are the operations on which it acted, by path; `moments` say when each of `requests` came. Questions are
    GETs; they are kept apart.
    """

    def __init__(self, listener: socket.socket | None = None, *, held: bool = False) -> None:
        super().__init__(listener, held=held)
        self.effects: dict[str, list[str]] = {}
        self.questions: list[str] = []
        self.moments: list[datetime] = []

    def take(self, request: Arrived, transport: asyncio.Transport) -> None:
        if request.head.startswith(b"GET "):
            asked = parse_qs(urlsplit(request.path).query)["operation"][0]
            known = any(asked in acted for acted in self.effects.values())
            self.questions.append(asked)
            answer = json.dumps({"operation": asked, "outcome": "processed" if known else "never_arrived"}).encode()
            transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            return
        operation = request.headers["idempotency-key"]
        acted = self.effects.setdefault(request.path, [])
        if operation not in acted:
            acted.append(operation)
        self.moments.append(datetime.now(UTC))
        super().take(request, transport)
