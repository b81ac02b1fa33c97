"""The default transport: libcurl's multi interface under epoll, many requests in flight in one thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import cast

import certifi
import pycurl

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport.base import (
    PUBLIC,
    Evidence,
    ForkedTransport,
    Head,
    Headers,
    Outcome,
    Refused,
    Request,
    Target,
    Tls,
    check_tls,
    header_lines,
    read_head,
    target_of,
    verdict_of,
)
from deliveries.transport.curl_connections import Connections
from deliveries.transport.curl_deadlines import Deadlines
from deliveries.transport.curl_errors import sentence
from deliveries.transport.curl_handle import Easy, Handle
from deliveries.transport.curl_names import Names, Waiting
from deliveries.transport.readiness import Readiness
from deliveries.transport.resolve import Lookup, look_up

IDLE_CONNECTIONS = 512  # kept open for reuse, over all endpoints
_STEP = 256  # requests in flight, more or less, after which libcurl is told
_REAPED = 64  # descriptors, after which ended requests are taken out, so that `_keep_idle` keeps up
_EXPECT = "Expect:"  # removes the header that libcurl would wait on, and on whose refusal it would send again
_NO_HEADERS: Headers = ()
_UNREACHED = (pycurl.E_COULDNT_CONNECT, pycurl.E_OPERATION_TIMEDOUT)  # where nothing was begun to be sent


class CurlTransport:
    """Implements `Transport`. One thread of one process uses it; nothing is opened before the first use.

    `policy` may be replaced at any time: it is asked at every connection and again at every reuse of one.
    """

    most = 2_048

    def __init__(self, egress_policy: EgressPolicy, *, ca_file: str | None = None, look_up: Lookup = look_up) -> None:
        self.policy = egress_policy
        self._ca_file = ca_file or certifi.where()
        self._look_up = look_up
        self._pid: int | None = None
        self._flights: dict[int, Handle] = {}
        self._deadlines = Deadlines(self._flights)
        self._waiting: dict[int, Waiting] = {}
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
            if request.tls is not PUBLIC:
                check_tls(request.tls)
            addresses = self._names.addresses(target, self.policy)
            if addresses:
                self._launch(request, target, lines, addresses, started)
            else:
                self._names.wait(Waiting(request, target, lines, started))
        except Refused as refused:
            self._not_sent(request, str(refused), started)

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
        flying = [self._flights[key] for key in wanted if key in self._flights]
        for handle in flying:
            handle.stopped = True
        self._hear(flying)
        stopped = [outcome for outcome in self._done if outcome.key in wanted]
        self._done = [outcome for outcome in self._done if outcome.key not in wanted]
        for handle in flying:
            if self._flights.get(handle.request.key) is handle:
                self._multi.remove_handle(handle.curl)
                stopped.append(self._outcome(handle, 0, "", aborted=True))
        for key in wanted:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
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
        self._names.resolver.close()
        self._readiness.close()
        self._pid = None
        for kept in (self._flights, self._deadlines, self._waiting, self._spare, self._done):
            kept.clear()

    def _enter(self) -> None:
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid is not None:
            raise ForkedTransport
        # libcurl would write the secrets of every TLS connection to the file that this names.
        os.environ.pop("SSLKEYLOGFILE", None)
        self._readiness = Readiness()
        self._names = Names(self._look_up, self._waiting)
        self._readiness.ring_on(self._names.resolver.fileno())
        self._connections = Connections()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._readiness.on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._readiness.on_timer)
        self._busy = -1  # so that it is set now
        self._keep_idle()
        self._pid = pid

    def _keep_idle(self) -> None:
        """Tell libcurl how many connections to keep. It counts those in use too: with more than it keeps in flight it
        would close every other connection after each request."""
        if not self._busy - _STEP <= len(self._flights) <= self._busy:
            self._busy = len(self._flights) + _STEP // 2
            self._multi.setopt(pycurl.M_MAXCONNECTS, self._busy + IDLE_CONNECTIONS)

    def _launch(
        self, request: Request, target: Target, lines: list[str], addresses: tuple[str, ...], started: float
    ) -> None:
        handle = self._handle(PUBLIC if target.plain else request.tls)
        handle.take(request, target, lines, addresses=addresses, policy=self.policy, started=started)
        handle.begin(fresh=False)
        self._flights[request.key] = handle
        self._keep_idle()
        self._deadlines.add(handle)
        self._multi.add_handle(handle.curl)

    def _handle(self, tls: Tls) -> Handle:
        """A handle that no other request is on; `Refused` when libcurl does not take what the Tls holds."""
        if tls is PUBLIC or tls == PUBLIC:
            if self._spare:
                return self._spare.pop()
            tls = PUBLIC
        return Handle(self._connections, self._readiness.opened, self._ca_file, tls)

    def _turn(self, until: float) -> bool:
        """Do what is due, wait for more at most until `until`, do that; True when the caller's `wake` is readable."""
        readiness, multi, names = self._readiness, self._multi, self._names
        now = time.monotonic()
        if self._deadlines.next() <= now:
            self._end_overdue(now)
        if readiness.due <= now:
            readiness.due = float("inf")
            multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._reap()
        for waiting in names.given_up(now):
            self._not_sent(waiting.request, "The host name was not resolved in time.", waiting.started)
        until = 0.0 if self._done else min(until, names.next(), self._deadlines.next())
        ready, rung = readiness.wait(until - time.monotonic())
        for number, (fd, mask) in enumerate(ready, 1):
            multi.socket_action(fd, mask)
            if not number % _REAPED:
                self._reap()
        bell = names.resolver.fileno()
        if bell in rung:
            rung.remove(bell)
            self._launch_answered()
        if ready:
            self._reap()
        return bool(rung)

    def _launch_answered(self) -> None:
        """Begin the requests whose name was looked up."""
        for waiting, addresses in self._names.answered(self.policy):
            try:
                if isinstance(addresses, Refused):
                    raise addresses
                self._launch(waiting.request, waiting.target, waiting.header_lines, addresses, waiting.started)
            except Refused as refused:
                self._not_sent(waiting.request, str(refused), waiting.started)

    def _end_overdue(self, now: float) -> None:
        """End what is past its deadline, with a last look for its answer."""
        overdue = self._deadlines.over(now)
        self._hear(overdue)
        for handle in overdue:
            if self._flights.get(handle.request.key) is handle:
                self._finish(handle, pycurl.E_OPERATION_TIMEDOUT, "")

    def _hear(self, handles: list[Handle]) -> None:
        """Read what lies in the sockets of transfers that are about to be ended: the answers that came meanwhile.

        What has not been sent of them by now never is.
        """
        for handle in handles:
            handle.shut()
        for handle in handles:
            if handle.fd >= 0:
                self._multi.socket_action(handle.fd, pycurl.CSELECT_IN)
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
        self._done.append(self._outcome(handle, code, message, aborted=handle.stopped and code != 0))

    def _again(self, handle: Handle, code: int) -> bool:
        """Send once more where it is proven that nothing was sent: on a fresh connection when a reused one had died,
        or to the next address when one could not be reached or did not answer in time. The deadline stays."""
        if handle.refused or handle.sends > 1 or handle.curl.getinfo(pycurl.REQUEST_SIZE):
            return False
        overdue = handle.deadline <= time.monotonic()
        if handle.reused:
            if handle.resubmitted or overdue:
                return False
            handle.resubmitted = True
        elif code in _UNREACHED and not handle.sends:
            self._names.resolver.put_last(handle.target.host, handle.addresses[0])
            if overdue or len(handle.addresses) == 1:
                return False
            handle.addresses = handle.addresses[1:]
        else:
            return False
        handle.begin(fresh=handle.resubmitted)
        self._multi.add_handle(handle.curl)
        return True

    def _outcome(self, handle: Handle, code: int, message: str, *, aborted: bool) -> Outcome:
        """Report, and free the handle."""
        request = handle.request
        head = read_head(handle.lines)
        evidence = handle.evidence(code, head_complete=head.status is not None, aborted=aborted)
        verdict = verdict_of(evidence, head.status)
        error = ""
        if code or aborted or verdict != ANSWERED:
            error = sentence(evidence, code, _early(evidence, head) or handle.refused or head.trouble, message)
        body = handle.body
        del self._flights[request.key]
        self._keep_idle()
        if handle.tls is PUBLIC:
            self._spare.append(handle)
        else:
            handle.close()
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
