"""Name look-ups outside the transfers, so that a slow name server holds up only the names that it serves.

libcurl's own resolver has twenty threads per multi: ten slow names delayed a healthy one by seconds. Here every name
has at most one look-up at a time, in a thread of its own, in one of two lanes:

- the quick lane, for names of which nothing bad is known. A look-up that lasts longer than QUICK_S counts against the
  slow lane from then on.
- the slow lane, for names whose last look-up lasted that long, those that used to be the least slow first.

An answer that is older than REMEMBER_S is given for STALE_S more while the name is looked up again: a name in use never
waits. Who waits for a name is bounded by the caller; a look-up that nobody waits for any more is not begun again before
it has ended.
Limit: getaddrinfo cannot be stopped. ALL_AT_ONCE names of which nothing was known before, and which all hang at the
same time, hold up further new names until the first of them ends.
"""

from __future__ import annotations

import heapq
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from deliveries.transport.bell import Bell

Lookup = Callable[[str], tuple[str, ...]]

REMEMBER_S = 30.0  # getaddrinfo tells no time to live; a moved name is found again after this long
STALE_S = 60.0  # an address is called for at most REMEMBER_S + STALE_S after it was looked up
REMEMBER_FAILURE_S = 2.0
QUICK_S = 0.5
QUICK_AT_ONCE = 256
SLOW_AT_ONCE = 64
ALL_AT_ONCE = 512  # threads, of about 25 kB each while they wait
NAMES_REMEMBERED = 8192
STACK_BYTES = 512 * 1024  # address space, of which a look-up touches little; the system's default is 8 MiB

_FINAL = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_NO_ADDRESS = "The host name has no address."


class Answer(NamedTuple):
    """Numeric addresses in the order to try them, or none and the `error`.

    Looked up again when it is used after `until`, not used after `stale`; both in monotonic seconds. `final`: the name
    server said so; otherwise it may know better a moment later.
    """

    addresses: tuple[str, ...]
    error: str
    until: float
    stale: float
    final: bool = True


class Rung(Protocol):
    """Is rung, from any thread, when `Resolver.collect` has something to do. `Bell` is one."""

    @property
    def fd(self) -> int: ...

    def ring(self) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


def look_up(host: str) -> tuple[str, ...]:
    """Every address of `host`, which is taken as absolute: the search domains of resolv.conf never apply.

    OSError or UnicodeError when it has none. Limit: names that only /etc/hosts knows are not found.
    """
    found = socket.getaddrinfo(host + ".", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    """Looks names up in threads of its own. Everything but the look-up itself runs in the caller's thread."""

    def __init__(self, look_up: Lookup = look_up, bell: Rung | None = None) -> None:
        self._look_up = look_up
        self._bell: Rung = bell or Bell()
        self._answers: dict[str, Answer] = {}
        self._slow_names: dict[str, float] = {}  # how long the last look-up lasted, in seconds
        self._asked: set[str] = set()  # waiting or running
        self._queue: deque[str] = deque()
        self._slow_queue: list[tuple[float, int, str]] = []  # a heap
        self._count = 0
        self._quick: dict[str, float] = {}  # running since, oldest first
        self._slow: set[str] = set()  # running
        self._results: SimpleQueue[tuple[str, Answer, float]] = SimpleQueue()
        self._clock: threading.Timer | None = None

    def fileno(self) -> int:
        """A descriptor that is readable when `collect` has something to do."""
        return self._bell.fd

    def known(self, host: str) -> Answer | None:
        """The remembered answer; None when `host` must be asked for. An old answer is renewed meanwhile."""
        answer = self._answers.get(host)
        if answer is None:
            return None
        now = time.monotonic()
        if answer.until <= now:
            if answer.stale <= now:
                return None
            self.ask(host)
        return answer

    def ask(self, host: str) -> None:
        """Look `host` up unless that is going on already."""
        if host in self._asked:
            return
        self._asked.add(host)
        lasted = self._slow_names.get(host)
        if lasted is None:
            self._queue.append(host)
        else:
            self._count += 1
            heapq.heappush(self._slow_queue, (lasted, self._count, host))
        self._start()

    def collect(self) -> list[tuple[str, Answer]]:
        """The answers that came since the last call; there may be none."""
        self._bell.clear()
        came: list[tuple[str, Answer]] = []
        while True:
            try:
                host, answer, lasted = self._results.get_nowait()
            except Empty:
                break
            self._asked.discard(host)
            self._slow.discard(host)
            self._quick.pop(host, None)
            self._slow_names.pop(host, None)
            if lasted > QUICK_S:
                _remember(self._slow_names, host, lasted)
            came.append((host, self._keep(host, answer)))
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
        self._slow_queue.clear()
        clock = self._clock
        if clock is not None:
            clock.cancel()
        self._bell.close()

    def _keep(self, host: str, answer: Answer) -> Answer:
        """Remember the answer. While the old one may still be used it outlives a name server that is in trouble."""
        old = self._answers.pop(host, None)
        doubtful = not answer.addresses and not answer.final
        if doubtful and old is not None and old.addresses and old.stale > time.monotonic():
            answer = old._replace(until=min(answer.until, old.stale))
        _remember(self._answers, host, answer)
        return answer

    def _start(self) -> None:
        """Begin what the lanes have room for."""
        now = time.monotonic()
        self._move_overdue(now)
        while self._queue and len(self._quick) < QUICK_AT_ONCE and self._room():
            host = self._queue.popleft()
            self._quick[host] = now
            self._run(host)
        while self._slow_queue and len(self._slow) < SLOW_AT_ONCE and self._room():
            host = heapq.heappop(self._slow_queue)[2]
            self._slow.add(host)
            self._run(host)
        if self._queue and self._quick and self._clock is None:
            # Nobody else would come back when the oldest of the quick lane has had its time.
            clock = threading.Timer(next(iter(self._quick.values())) + QUICK_S - now, self._strike)
            clock.daemon = True
            self._clock = clock
            clock.start()

    def _strike(self) -> None:
        """In the clock's thread. It is gone before it rings: who is woken by it sets the next one."""
        self._clock = None
        self._bell.ring()

    def _move_overdue(self, now: float) -> None:
        overdue = []
        for host, started in self._quick.items():
            if now - started < QUICK_S:
                break
            overdue.append(host)
        for host in overdue:
            del self._quick[host]
            self._slow.add(host)

    def _room(self) -> bool:
        return len(self._quick) + len(self._slow) < ALL_AT_ONCE

    def _run(self, host: str) -> None:
        try:
            _start_small(self._answer, host)
        except RuntimeError:  # the system has no more threads to give
            self._put(host, _failure("no thread could be started"), 0.0)

    def _answer(self, host: str) -> None:
        """In a thread of its own."""
        started = time.monotonic()
        try:
            answer = _success(self._look_up(host))
        except UnicodeError:
            answer = _failure("it is not a valid name", final=True)
        except OSError as error:
            final = isinstance(error, socket.gaierror) and error.errno in _FINAL
            answer = _failure(error.strerror or type(error).__name__, final=final)
        except Exception as error:  # noqa: BLE001 - without an answer the name could never be asked for again
            answer = _failure(type(error).__name__)
        self._put(host, answer, time.monotonic() - started)

    def _put(self, host: str, answer: Answer, lasted: float) -> None:
        self._results.put((host, answer, lasted))
        self._bell.ring()


def _success(addresses: tuple[str, ...]) -> Answer:
    now = time.monotonic()
    if not addresses:
        return Answer((), _NO_ADDRESS, now + REMEMBER_FAILURE_S, now + REMEMBER_FAILURE_S)
    return Answer(addresses, "", now + REMEMBER_S, now + REMEMBER_S + STALE_S)


def _failure(reason: str, *, final: bool = False) -> Answer:
    until = time.monotonic() + REMEMBER_FAILURE_S
    return Answer((), f"The host name could not be resolved: {reason}.", until, until, final)


def _remember(names: dict[str, Any], host: str, what: Any) -> None:
    """Put in as the newest; the oldest makes room."""
    if len(names) >= NAMES_REMEMBERED:
        del names[next(iter(names))]
    names[host] = what


_starting = threading.Lock()


def _start_small(target: Callable[[str], None], host: str) -> None:
    """Start a thread with a small stack. The size is the whole process's: a thread that another one starts in the same
    instant gets it too, which is enough for any of ours."""
    thread = threading.Thread(target=target, args=(host,), name="relay-resolve", daemon=True)
    with _starting:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
