"""Name servers for tests of the resolver, and waiting for its answers."""

from __future__ import annotations

import select
import threading

from deliveries.transport.resolve import Answer, Resolver

HERE = ("127.0.0.1",)


class Servers:
    """A look-up that hangs, for the names that `hang` holds, until `release`; it notes who was asked for, in order."""

    def __init__(self) -> None:
        self.hang: set[str] = set()
        self.answers: dict[str, tuple[str, ...] | Exception] = {}
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self._released: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def look_up(self, host: str) -> tuple[str, ...]:
        with self._lock:
            self.asked.append(host)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            event = self._released.setdefault(host, threading.Event())
        try:
            if host in self.hang:
                event.wait(30)
            answer = self.answers.get(host, HERE)
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            with self._lock:
                self.at_once -= 1

    def hold(self, *hosts: str) -> None:
        """From now on these hang."""
        with self._lock:
            for host in hosts:
                self._released[host] = threading.Event()
            self.hang = set(hosts)

    def release(self, *hosts: str) -> None:
        self.hang -= set(hosts)
        for host in hosts:
            with self._lock:
                event = self._released.setdefault(host, threading.Event())
            event.set()


def until_answered(resolver: Resolver, *hosts: str, seconds: float = 10) -> dict[str, Answer]:
    """Collect until each of these was answered, woken by the bell alone."""
    waiting = select.poll()
    waiting.register(resolver.fileno(), select.POLLIN)
    came: dict[str, Answer] = {}
    while not came.keys() >= set(hosts):
        assert waiting.poll(seconds * 1000), f"only {sorted(came)} were answered, and nobody rang"
        came.update(resolver.collect())
    return came


def answer_of(resolver: Resolver, host: str) -> Answer:
    resolver.ask(host)
    return until_answered(resolver, host)[host]
