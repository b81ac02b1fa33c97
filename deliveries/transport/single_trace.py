"""What is known of one request while it is made, exact at any moment and in any thread; and how it is stopped."""

from __future__ import annotations

import errno
import select
import socket
import threading
import time

from deliveries.egress import EgressPolicy
from deliveries.transport.base import PUBLIC, Head, Target, Tls

LATE_READS = 64
"""Reads after the deadline: as many as a head and a body of the greatest length take, 8 KiB each, and some more."""


class Stopped(OSError):
    """The request was stopped by us."""


class Trace:
    """One request on its way: where it may go, until when (monotonic seconds), and what was seen of it. Bytes.

    `stop` and the counts may be used by other threads than the one that makes the request.
    """

    def __init__(
        self,
        target: Target,
        addresses: tuple[str, ...],
        *,
        policy: EgressPolicy,
        started: float,
        deadline: float,
        connect_s: float,
        body_bytes: int,
        ca_file: str,
        tls: Tls = PUBLIC,
    ) -> None:
        self.target = target
        self.policy = policy
        self.started = started
        self.deadline = deadline
        self.connect_s = connect_s
        self.body_bytes = body_bytes
        self.ca_file = ca_file
        self.addresses = addresses
        self.tls = tls
        self.unreachable: list[str] = []
        self.sends = 0
        self.offered = 0
        self.written = 0  # all of it is the kernel's; of what was offered, a TLS library may hold some
        self.head_bytes = 0
        self.stopped = False
        self.peer: str | None = None
        self.head = Head(None, (), "")
        self.failure: Exception | None = None
        self.lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._late = 0

    @property
    def complete(self) -> bool:
        """The whole request was written."""
        return self.head_bytes > 0 and self.written >= self.head_bytes + self.body_bytes

    @property
    def body_written(self) -> int:
        return max(self.written - self.head_bytes, 0)

    def stop(self) -> None:
        """Nothing is written from now on, and the connection is closed in both directions. What has come can be read.

        Whoever waits at the socket goes on at once, and finds out.
        """
        with self.lock:
            self.stopped = True
            if self._socket is None:
                return
            try:
                # Not the method of an SSLSocket, which would go on without TLS.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.EBADF):  # the receiver has reset it; TLS takes it over
                    raise

    def over(self) -> None:
        """Nothing more happens: let go of what refers back to this."""
        with self.lock:
            self._socket = self.failure = None

    def may_go_on(self) -> None:
        """`Stopped` or TimeoutError when nothing more may be done."""
        if self.stopped:
            raise Stopped
        if self.deadline <= time.monotonic():
            raise TimeoutError("the total deadline has passed")

    def may_read(self) -> None:
        """TimeoutError when enough was read that may have come too late."""
        if self.stopped or self.deadline <= time.monotonic():
            self._late += 1
            if self._late > LATE_READS:
                raise TimeoutError("the total deadline has passed")

    def uses(self, made: socket.socket) -> None:
        """This is the socket of the request now."""
        self._socket = made

    def wait(self, made: socket.socket, events: int, until: float | None = None) -> int:
        """Wait for `events` at the socket and give those that there are; TimeoutError when none came in time."""
        if self.stopped:
            raise Stopped
        waiting = select.poll()
        waiting.register(made, events)
        left = (self.deadline if until is None else min(until, self.deadline)) - time.monotonic()
        ready = waiting.poll(max(left, 0.0) * 1000)
        if not ready:
            raise TimeoutError("nothing came in time")
        return ready[0][1]
