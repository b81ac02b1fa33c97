"""What is known of the connections in libcurl's cache, to judge one before a request rides on it."""

from __future__ import annotations

import select
from typing import NamedTuple

from deliveries.transport.base import Tls

_STALE = select.POLLIN | select.POLLRDHUP

Ends = tuple[int, str, int]
"""Local port, peer address and peer port."""


class _Known(NamedTuple):
    fd: int
    poll: select.poll
    tls: Tls


class Connections:
    """Which descriptor a connection of the cache has, and with what it was made.

    Bounded by the number of descriptors: a new socket with a number overwrites what was known of the old one.
    """

    def __init__(self) -> None:
        self._by_ends: dict[Ends, _Known] = {}
        self._by_fd: dict[int, Ends] = {}

    def opened(self, fd: int) -> None:
        """A new socket has this number."""
        ends = self._by_fd.pop(fd, None)
        if ends is not None:
            known = self._by_ends.get(ends)
            if known is not None and known.fd == fd:
                del self._by_ends[ends]

    def connected(self, fd: int, ends: Ends, tls: Tls) -> None:
        """The socket is connected, and made with `tls`."""
        poll = select.poll()
        poll.register(fd, _STALE)
        self._by_ends[ends] = _Known(fd, poll, tls)
        self._by_fd[fd] = ends

    def usable(self, ends: Ends, tls: Tls) -> int:
        """The descriptor of a connection that a request with `tls` may use.

        -1 when the peer has closed it, something is waiting to be read, it was made with another Tls, or is not known.
        """
        known = self._by_ends.get(ends)
        if known is None or known.poll.poll(0) or not (known.tls is tls or known.tls == tls):
            return -1
        return known.fd
