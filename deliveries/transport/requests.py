"""The other transport: `requests`, for where there is no pycurl. A thread and a fresh connection for each request.

It keeps to every rule of `single`, which each of its threads calls, and reports as the default transport does. What it
cannot do is use a connection again: every request pays for its own, and for its own TLS handshake.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue

import certifi
from requests import PreparedRequest

from deliveries.egress import EgressPolicy
from deliveries.outcomes import NOT_SENT
from deliveries.transport.base import Evidence, ForkedTransport, Outcome, Refused, Request, Target, check_tls, target_of
from deliveries.transport.bell import Bell
from deliveries.transport.curl_names import Names, Waiting
from deliveries.transport.resolve import Lookup, look_up
from deliveries.transport.single import Answer, exchange, prepare, told
from deliveries.transport.single_trace import Trace

THREADS = 256
"""Requests that are on the wire at once, a thread each: as many as a dispatcher holds, so that none of its own waits.
One that is on its way costs about 40 kB. What exceeds it waits its turn, while its deadline runs."""
STOP_S = 5.0
"""How long a thread whose connection was cut may take to notice. It takes a moment: nothing is left to wait for."""
_OVERDUE = "Its time was over before it was sent."
_STOPPED = "Stopped by us before it was sent."


class _Named(Waiting):
    """A request whose host name is being looked up."""

    __slots__ = ("prepared",)

    def __init__(self, request: Request, target: Target, prepared: PreparedRequest, started: float) -> None:
        super().__init__(request, target, [], started)
        self.prepared = prepared


class _Flight:
    """A request that may be sent. `answer` is what the thread that sent it has to say."""

    __slots__ = ("answer", "prepared", "request", "trace")

    def __init__(self, request: Request, prepared: PreparedRequest, trace: Trace) -> None:
        self.request = request
        self.prepared = prepared
        self.trace = trace
        self.answer: Answer | None = None


class RequestsTransport:
    """Implements `Transport`. One thread of one process uses it; nothing is opened before the first use.

    `policy` may be replaced at any time: it is asked before every connection, and again when that is made.
    """

    most = THREADS

    def __init__(
        self,
        egress_policy: EgressPolicy,
        *,
        ca_file: str | None = None,
        look_up: Lookup = look_up,
        threads: int = THREADS,
    ) -> None:
        self.policy = egress_policy
        self._ca_file = ca_file or certifi.where()
        self._look_up = look_up
        self._most = threads
        self._pid: int | None = None
        self._waiting: dict[int, Waiting] = {}  # for a name
        self._queued: dict[int, _Flight] = {}  # for a thread, oldest first
        self._flights: dict[int, _Flight] = {}  # with a thread
        self._overdue: list[tuple[float, int]] = []  # a heap of the deadlines of what is queued, and of what was
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that wait for work
        self._done: list[Outcome] = []

    @property
    def in_flight(self) -> int:
        return len(self._flights) + len(self._queued) + len(self._waiting) + len(self._done)

    def submit(self, request: Request) -> None:
        """Begin a request; ValueError when its key is in flight already."""
        self._enter()
        key = request.key
        if key in self._flights or key in self._queued or key in self._waiting:
            raise ValueError(f"request {key} is in flight already")
        started = time.monotonic()
        try:
            target = target_of(request.url)
            check_tls(request.tls)
            prepared = prepare("POST", request.url, request.headers, request.body)
            addresses = self._names.addresses(target, self.policy)
        except Refused as refused:
            self._not_sent(request, str(refused), started)
            return
        named = _Named(request, target, prepared, started)
        if addresses:
            self._begin(named, addresses)
        else:
            self._names.wait(named)

    def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
        """Take what came; see `Transport.poll`."""
        self._enter()
        until = time.monotonic() + timeout
        while True:
            woken = self._turn(until, wake)
            if self._done or woken or time.monotonic() >= until:
                done, self._done = self._done, []
                return done

    def abort(self, keys: Iterable[int]) -> list[Outcome]:
        """Stop these requests now. The receiver sees its connection close; what it had answered by then is reported."""
        self._enter()
        wanted = set(keys)
        cut = [self._flights[key] for key in wanted if key in self._flights]
        for flight in cut:
            flight.trace.stop()
        for key in wanted:
            waiting = self._waiting.pop(key, None)
            queued = self._queued.pop(key, None)
            if waiting is not None:
                self._not_sent(waiting.request, _STOPPED, waiting.started, aborted=True)
            elif queued is not None:
                self._not_sent(queued.request, _STOPPED, queued.trace.started, aborted=True)
        until = time.monotonic() + STOP_S
        while any(self._flights.get(flight.request.key) is flight for flight in cut):
            if not self._take(max(until - time.monotonic(), 0.0)):
                for flight in cut:  # its thread gets no time: what is known of it is exact all the same
                    if self._flights.get(flight.request.key) is flight:
                        self._report(flight, told(flight.trace))
        stopped = [outcome for outcome in self._done if outcome.key in wanted]
        self._done = [outcome for outcome in self._done if outcome.key not in wanted]
        return stopped

    def close(self) -> None:
        """Close every connection and end every thread; a later use starts afresh. In a forked process it does nothing:
        the threads are the parent's."""
        if self._pid is None or self._pid != os.getpid():
            return
        for flight in self._flights.values():
            flight.trace.stop()
        for _ in self._threads:
            self._work.put(None)
        until = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        self._names.resolver.close()
        self._bell.close()
        self._pid = None
        self._idle = 0
        for kept in (self._waiting, self._queued, self._flights, self._overdue, self._threads, self._done):
            kept.clear()

    # --- the caller's thread -------------------------------------------------------------------------------------

    def _enter(self) -> None:
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid is not None:
            raise ForkedTransport
        self._bell = Bell()
        self._names = Names(self._look_up, self._waiting)
        self._work: SimpleQueue[_Flight | None] = SimpleQueue()
        self._ended: SimpleQueue[_Flight] = SimpleQueue()
        self._pid = pid

    def _begin(self, named: _Named, addresses: tuple[str, ...]) -> None:
        """Give the request to a thread, or have it wait for one."""
        request = named.request
        trace = Trace(
            named.target,
            addresses,
            policy=self.policy,
            started=named.started,
            deadline=named.started + request.timeout_ms / 1000.0,
            connect_s=request.connect_timeout_ms / 1000.0,
            body_bytes=len(request.body),
            ca_file=self._ca_file,
            tls=request.tls,
        )
        flight = _Flight(request, named.prepared, trace)
        if self._hire():
            self._give(flight)
        elif not self._threads:
            self._not_sent(request, "No thread could be started to send it.", named.started)
        else:
            self._queued[request.key] = flight
            heapq.heappush(self._overdue, (trace.deadline, request.key))

    def _hire(self) -> bool:
        """Whether a thread is free; one more is started when there may be more."""
        if not self._idle and len(self._threads) < self._most:
            thread = threading.Thread(
                target=_run, args=(self._work, self._ended, self._bell), name="relay-requests", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system allows no more: those that there are have to do
                return False
            self._threads.append(thread)
            self._idle += 1
        return self._idle > 0

    def _give(self, flight: _Flight) -> None:
        self._idle -= 1
        self._flights[flight.request.key] = flight
        self._work.put(flight)

    def _turn(self, until: float, wake: int | None) -> bool:
        """Do what is due, wait for more at most until `until`; True when the caller's `wake` is readable."""
        now = time.monotonic()
        names = self._names
        for waiting in names.given_up(now):
            self._not_sent(waiting.request, "The host name was not resolved in time.", waiting.started)
        self._give_up(now)
        until = 0.0 if self._done else min(until, names.next(), self._overdue[0][0] if self._overdue else until)
        waits = select.poll()
        bell, looked_up = self._bell.fd, names.resolver.fileno()
        for fd in {bell, looked_up} | ({wake} if wake is not None else set()):
            waits.register(fd, select.POLLIN)
        ready = [fd for fd, _ in waits.poll(max(until - time.monotonic(), 0.0) * 1000)]
        if bell in ready:
            self._bell.clear()
            while self._take(0.0):
                pass
        if looked_up in ready:
            self._begin_answered()
        return wake in ready

    def _give_up(self, now: float) -> None:
        """Report what waits for a thread, and has no time left."""
        overdue = self._overdue
        while overdue and overdue[0][0] <= now:
            deadline, key = heapq.heappop(overdue)
            flight = self._queued.get(key)
            if flight is not None and flight.trace.deadline == deadline:
                del self._queued[key]
                self._not_sent(flight.request, _OVERDUE, flight.trace.started)

    def _begin_answered(self) -> None:
        """Begin the requests whose name was looked up."""
        for waiting, addresses in self._names.answered(self.policy):
            if isinstance(addresses, Refused):
                self._not_sent(waiting.request, str(addresses), waiting.started)
            else:
                assert isinstance(waiting, _Named)
                self._begin(waiting, addresses)

    def _take(self, seconds: float) -> bool:
        """Take what one thread has to say, and give the thread the next request; False when nobody spoke in time."""
        try:
            flight = self._ended.get(timeout=seconds) if seconds else self._ended.get_nowait()
        except Empty:
            return False
        self._idle += 1
        if self._queued:
            key = next(iter(self._queued))
            self._give(self._queued.pop(key))
        if self._flights.get(flight.request.key) is flight and flight.answer is not None:
            self._report(flight, flight.answer)
        return True

    def _report(self, flight: _Flight, answer: Answer) -> None:
        del self._flights[flight.request.key]
        for address in flight.trace.unreachable:
            self._names.resolver.put_last(flight.trace.target.host, address)
        verdict, status, headers, body, _, error, evidence = answer
        self._done.append(Outcome(flight.request.key, verdict, status, headers, body, error, evidence))

    def _not_sent(self, request: Request, error: str, started: float, *, aborted: bool = False) -> None:
        elapsed_ms = int((time.monotonic() - started) * 1000)
        evidence = Evidence(body_bytes=len(request.body), aborted=aborted, elapsed_ms=elapsed_ms)
        self._done.append(Outcome(request.key, NOT_SENT, None, (), b"", error, evidence))


def _run(work: SimpleQueue[_Flight | None], ended: SimpleQueue[_Flight], bell: Bell) -> None:
    """A thread: make one request after the other until there is None."""
    while (flight := work.get()) is not None:
        flight.answer = exchange(flight.trace, flight.prepared)
        ended.put(flight)
        bell.ring()
        del flight  # its body and its key are not kept while the thread is idle
