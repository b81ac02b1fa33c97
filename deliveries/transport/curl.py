"""The default transport: libcurl's multi interface under epoll, many requests in flight in one thread."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable
from typing import cast

import certifi
import pycurl

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport.base import (
    Evidence,
    Head,
    Headers,
    Outcome,
    Refused,
    Request,
    Target,
    header_lines,
    read_head,
    target_of,
    verdict_of,
)
from deliveries.transport.curl_errors import sentence
from deliveries.transport.curl_handle import Connections, Easy, Handle, refusal
from deliveries.transport.readiness import Readiness
from deliveries.transport.resolve import Answer, Lookup, Resolver, look_up

IDLE_CONNECTIONS = 512  # kept open for reuse, over all endpoints
_EXPECT = "Expect:"  # removes the header that libcurl would wait on, and on whose refusal it would send again
_NO_HEADERS: Headers = ()


class ForkedTransport(RuntimeError):
    """The transport was first used in another process. Its connections are that process's: make a new one here."""


class _Waiting:
    """A request whose host name is being looked up."""

    __slots__ = ("header_lines", "request", "started", "target")

    def __init__(self, request: Request, target: Target, header_lines: list[str], started: float) -> None:
        self.request = request
        self.target = target
        self.header_lines = header_lines
        self.started = started


class CurlTransport:
    """Implements `Transport`. One thread of one process uses it; nothing is opened before the first use.

    `policy` may be replaced at any time: it is asked at every connection and again at every reuse of one.
    """

    def __init__(self, egress_policy: EgressPolicy, *, ca_file: str | None = None, look_up: Lookup = look_up) -> None:
        self.policy = egress_policy
        self._ca_file = ca_file or certifi.where()
        self._look_up = look_up
        self._pid: int | None = None
        self._flights: dict[int, Handle] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_for: dict[str, list[int]] = {}
        self._patience: list[tuple[float, int, _Waiting]] = []  # a heap: when to give a look-up up
        self._spare: list[Handle] = []
        self._done: list[Outcome] = []

    @property
    def in_flight(self) -> int:
        return len(self._flights) + len(self._waiting) + len(self._done)

    def submit(self, request: Request) -> None:
        """Begin a request; ValueError when its key is in flight already."""
        self._enter()
        if request.key in self._flights or request.key in self._waiting:
            raise ValueError(f"request {request.key} is in flight already")
        started = time.monotonic()
        try:
            target = target_of(request.url)
            lines = header_lines(request.headers)
            lines.append(_EXPECT)
            addresses = self._addresses(target)
        except Refused as refused:
            self._not_sent(request, str(refused), started)
            return
        if addresses:
            self._launch(request, target, lines, addresses, started)
        else:
            self._wait_for_name(_Waiting(request, target, lines, started))

    def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
        """Drive the transfers; see `Transport.poll`."""
        self._enter()
        self._readiness.wake_on(wake)
        until = time.monotonic() + timeout
        while True:
            woken = self._turn(until)
            if self._done or woken or time.monotonic() >= until:
                done, self._done = self._done, []
                return done

    def abort(self, keys: Iterable[int]) -> list[Outcome]:
        """Stop these requests now. The receiver sees its connection close; what it had answered by then is reported."""
        self._enter()
        wanted = set(keys)
        self._hear([self._flights[key] for key in wanted if key in self._flights])
        stopped = [outcome for outcome in self._done if outcome.key in wanted]
        self._done = [outcome for outcome in self._done if outcome.key not in wanted]
        for key in wanted:
            handle = self._flights.get(key)
            waiting = self._waiting.pop(key, None)
            if handle is not None:
                self._multi.remove_handle(handle.curl)
                stopped.append(self._outcome(handle, 0, "", aborted=True))
            elif waiting is not None:
                evidence = Evidence(aborted=True, elapsed_ms=_since(waiting.started))
                stopped.append(Outcome(key, NOT_SENT, None, _NO_HEADERS, b"", sentence(evidence, 0, "", ""), evidence))
        if stopped:
            # The handle is free again, but only a turn closes what removing it left behind.
            self._readiness.on_timer(0)
        return stopped

    def close(self) -> None:
        """Close every connection; a later use starts afresh. In a forked process nothing of the parent's is touched."""
        if self._pid is None or self._pid != os.getpid():
            return
        for handle in self._flights.values():
            self._multi.remove_handle(handle.curl)
        self._multi.close()
        for handle in (*self._flights.values(), *self._spare):
            handle.curl.close()
        self._resolver.close()
        self._readiness.close()
        self._pid = None
        for kept in (self._flights, self._waiting, self._waiting_for, self._spare, self._done, self._patience):
            kept.clear()

    def _enter(self) -> None:
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid is not None:
            raise ForkedTransport("this transport was first used in another process; make a new one after the fork")
        # libcurl would write the secrets of every TLS connection to the file that this names.
        os.environ.pop("SSLKEYLOGFILE", None)
        self._readiness = Readiness()
        self._resolver = Resolver(self._look_up)
        self._readiness.ring_on(self._resolver.fileno())
        self._connections = Connections()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._readiness.on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._readiness.on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS)
        self._pid = pid

    # Names and addresses

    def _addresses(self, target: Target) -> tuple[str, ...]:
        """Vetted addresses to call; empty when the name must be looked up first."""
        if target.numeric:
            return self._vetted(target, (target.host,))
        if target.host == "localhost":  # never looked up (RFC 6761, 6.3)
            both = tuple(
                address
                for address in ("127.0.0.1", "::1")
                if self.policy.allows(address, target.port, plain=target.plain)
            )
            return both or self._vetted(target, ("127.0.0.1",))
        answer = self._resolver.known(target.host)
        return () if answer is None else self._answered(target, answer)

    def _answered(self, target: Target, answer: Answer) -> tuple[str, ...]:
        if not answer.addresses:
            raise Refused(answer.error)
        return self._vetted(target, answer.addresses)

    def _vetted(self, target: Target, addresses: tuple[str, ...]) -> tuple[str, ...]:
        """All of them or none: one bad record refuses the name, whichever address would have been tried first."""
        for address in addresses:
            if not self.policy.allows(address, target.port, plain=target.plain):
                raise Refused(refusal(address, target.port))
        return addresses

    def _wait_for_name(self, waiting: _Waiting) -> None:
        request = waiting.request
        self._waiting[request.key] = waiting
        self._waiting_for.setdefault(waiting.target.host, []).append(request.key)
        bound = min(request.connect_timeout_ms, request.timeout_ms) / 1000.0
        heapq.heappush(self._patience, (waiting.started + bound, request.key, waiting))
        self._resolver.ask(waiting.target.host)

    def _name_answered(self, host: str, answer: Answer) -> None:
        for key in self._waiting_for.pop(host, ()):
            waiting = self._waiting.pop(key, None)
            if waiting is None:
                continue  # it was stopped, or waited long enough
            try:
                addresses = self._answered(waiting.target, answer)
            except Refused as refused:
                self._not_sent(waiting.request, str(refused), waiting.started)
            else:
                self._launch(waiting.request, waiting.target, waiting.header_lines, addresses, waiting.started)

    def _give_up_names(self) -> None:
        now = time.monotonic()
        while self._patience and self._patience[0][0] <= now:
            _, key, waiting = heapq.heappop(self._patience)
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
                self._not_sent(waiting.request, "The host name was not resolved in time.", waiting.started)

    # Transfers

    def _launch(
        self, request: Request, target: Target, lines: list[str], addresses: tuple[str, ...], started: float
    ) -> None:
        handle = self._spare.pop() if self._spare else Handle(self._connections, self._readiness.opened, self._ca_file)
        handle.take(request, target, lines, addresses=addresses, policy=self.policy, started=started)
        handle.begin(addresses[0], fresh=False)
        self._flights[request.key] = handle
        self._multi.add_handle(handle.curl)

    def _turn(self, until: float) -> bool:
        """Do what is due, wait for more at most until `until`, do that; True when the caller's `wake` is readable."""
        readiness, multi = self._readiness, self._multi
        if readiness.due <= time.monotonic():
            if readiness.due:  # a timer, and not a new transfer
                self._end_overdue()
            readiness.due = float("inf")
            multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._reap()
        self._give_up_names()
        if self._done:
            until = 0.0
        elif self._patience:
            until = min(until, self._patience[0][0])
        ready, rung = readiness.wait(until - time.monotonic())
        if ready and 0 < readiness.due <= time.monotonic():
            # It stood still between the two looks at the clock: libcurl would drop what has just come.
            self._end_overdue()
            ready = []  # what is left of it is reported again in the next turn
        for fd, mask in ready:
            multi.socket_action(fd, mask)
        bell = self._resolver.fileno()
        if bell in rung:
            rung.remove(bell)
            for host, answer in self._resolver.collect():
                self._name_answered(host, answer)
        if ready:
            self._reap()
        return bool(rung)

    def _end_overdue(self) -> None:
        """End what is past its deadline ourselves, with a last look for its answer."""
        now = time.monotonic()
        overdue = [handle for handle in self._flights.values() if handle.deadline <= now]
        self._hear(overdue)
        for handle in overdue:
            if self._flights.get(handle.request.key) is handle:
                self._finish(handle, pycurl.E_OPERATION_TIMEDOUT, "")

    def _hear(self, handles: list[Handle]) -> None:
        """Read what lies in the sockets of transfers that are about to be ended.

        A process that stood still for a while finds there the answers that came meanwhile; libcurl would look at its
        clock first and drop them.
        """
        if not handles:
            return
        for handle in handles:
            handle.deadline = 0.0  # so that nothing of it is sent again
            handle.curl.setopt(pycurl.TIMEOUT_MS, 0)
        for fd, mask in self._readiness.wait(0.0)[0]:
            self._multi.socket_action(fd, mask)
        self._reap()

    def _reap(self) -> None:
        left = 1
        while left:
            left, finished, failed = self._multi.info_read()
            for curl in cast("list[Easy]", finished):
                self._finish(curl.handle, 0, "")
            for curl, code, message in cast("list[tuple[Easy, int, str]]", failed):
                self._finish(curl.handle, code, message)

    def _finish(self, handle: Handle, code: int, message: str) -> None:
        self._multi.remove_handle(handle.curl)
        if code and self._again(handle, code):
            return
        self._done.append(self._outcome(handle, code, message))

    def _again(self, handle: Handle, code: int) -> bool:
        """Send once more where it is proven that nothing was sent: on a fresh connection when a reused one had died,
        or to the next address when one could not be reached. The deadline stays."""
        if handle.refused or handle.deadline <= time.monotonic() or handle.curl.getinfo(pycurl.REQUEST_SIZE):
            return False
        if handle.reused:
            if handle.resubmitted:
                return False
            handle.resubmitted = True
        elif code == pycurl.E_COULDNT_CONNECT and not handle.sends and len(handle.addresses) > 1:
            self._resolver.put_last(handle.target.host, handle.addresses[0])
            handle.addresses = handle.addresses[1:]
        else:
            return False
        handle.begin(handle.addresses[0], fresh=handle.resubmitted)
        self._multi.add_handle(handle.curl)
        return True

    def _outcome(self, handle: Handle, code: int, message: str, *, aborted: bool = False) -> Outcome:
        """Report, and free the handle."""
        request = handle.request
        head = read_head(handle.lines)
        evidence = handle.evidence(code, head_complete=head.status is not None, aborted=aborted)
        verdict = verdict_of(evidence, head.status)
        error = ""
        if code or aborted or verdict != ANSWERED:
            error = sentence(evidence, code, handle.refused or _early(evidence, head) or head.trouble, message)
        body = handle.body
        del self._flights[request.key]
        self._spare.append(handle)
        return Outcome(request.key, verdict, head.status, head.headers, body, error, evidence)

    def _not_sent(self, request: Request, error: str, started: float) -> None:
        evidence = Evidence(body_bytes=len(request.body), elapsed_ms=_since(started))
        self._done.append(Outcome(request.key, NOT_SENT, None, _NO_HEADERS, b"", error, evidence))


def _early(evidence: Evidence, head: Head) -> str:
    if head.status is None or evidence.request_complete:
        return ""
    return f"The receiver answered {head.status} before the request was complete."


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
