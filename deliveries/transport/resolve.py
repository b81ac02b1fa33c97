"""Name look-ups outside the transfers, so that a slow name server holds up only the names that it serves.

libcurl's own resolver has twenty threads per multi: ten slow names delayed a healthy one by seconds. Here every name
has at most one look-up at a time, many names are looked up at once, and who waits is bounded by the caller.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

Lookup = Callable[[str], tuple[str, ...]]

REMEMBER_S = 30.0  # getaddrinfo tells no time to live; a moved name is found again after this long
REMEMBER_FAILURE_S = 2.0
LOOKUPS_AT_ONCE = 128
NAMES_REMEMBERED = 8192


class Answer(NamedTuple):
    """Numeric addresses in the order to try them, or none and the `error`; stale at `until` (monotonic seconds)."""

    addresses: tuple[str, ...]
    error: str
    until: float


def look_up(host: str) -> tuple[str, ...]:
    """Every address of `host`, which is taken as absolute: the search domains of resolv.conf never apply.

    OSError or UnicodeError when it has none. Limit: names that only /etc/hosts knows are not found.
    """
    found = socket.getaddrinfo(host + ".", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    """Looks names up in threads of its own. Everything but the look-up itself runs in the caller's thread."""

    def __init__(self, look_up: Lookup = look_up) -> None:
        self._look_up = look_up
        self._answers: dict[str, Answer] = {}
        self._asked: set[str] = set()
        self._queue: deque[str] = deque()
        self._running = 0
        self._results: SimpleQueue[tuple[str, Answer]] = SimpleQueue()
        self._bell = _Bell()

    def fileno(self) -> int:
        """A descriptor that is readable when `collect` has something to give."""
        return self._bell.fd

    def known(self, host: str) -> Answer | None:
        """The remembered answer, unless it is stale."""
        answer = self._answers.get(host)
        return answer if answer is not None and answer.until > time.monotonic() else None

    def ask(self, host: str) -> None:
        """Look `host` up unless that is going on already."""
        if host not in self._asked:
            self._asked.add(host)
            self._queue.append(host)
            self._start()

    def collect(self) -> list[tuple[str, Answer]]:
        """The answers that came since the last call."""
        self._bell.clear()
        came: list[tuple[str, Answer]] = []
        while True:
            try:
                came.append(self._results.get_nowait())
            except Empty:
                break
        for host, answer in came:
            if len(self._answers) >= NAMES_REMEMBERED:
                self._answers.clear()
            self._answers[host] = answer
            self._asked.discard(host)
            self._running -= 1
        self._start()
        return came

    def put_last(self, host: str, address: str) -> None:
        """Try `address` after the others of its name from now on: it could not be reached."""
        answer = self._answers.get(host)
        if answer is not None and address in answer.addresses:
            others = tuple(other for other in answer.addresses if other != address)
            self._answers[host] = answer._replace(addresses=(*others, address))

    def close(self) -> None:
        """Forget everything. Look-ups that are still going on end by themselves and ring nobody."""
        self._queue.clear()
        self._bell.close()

    def _start(self) -> None:
        while self._queue and self._running < LOOKUPS_AT_ONCE:
            host = self._queue.popleft()
            self._running += 1
            threading.Thread(target=self._run, args=(host,), name="relay-resolve", daemon=True).start()

    def _run(self, host: str) -> None:
        try:
            addresses = self._look_up(host)
            answer = Answer(addresses, "" if addresses else _NO_ADDRESS, time.monotonic() + REMEMBER_S)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a valid name"
            answer = Answer(
                (), f"The host name could not be resolved: {reason}.", time.monotonic() + REMEMBER_FAILURE_S
            )
        self._results.put((host, answer))
        self._bell.ring()


_NO_ADDRESS = "The host name has no address."


class _Bell:
    """An eventfd that a late thread cannot ring after it was closed, when its number may be someone else's."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._open = True

    def ring(self) -> None:
        with self._lock:
            if self._open:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return  # nobody rang

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self.fd)
