"""Which descriptors libcurl wants watched, and when its next timer is due: epoll and one clock.

`CurlMulti.select()` is select(2), which ignores descriptors from 1024 on; this is not.
"""

from __future__ import annotations

import errno
import select
import time

import pycurl

_MASK = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_BROKEN = select.EPOLLERR | select.EPOLLHUP
_NEVER = float("inf")
_AT_ONCE = 1024  # events taken in one turn


class Readiness:
    """The watched descriptors of one multi, and those of others that should end a wait."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}  # what the kernel was told
        self._idle: set[int] = set()  # watched for input though libcurl no longer asks
        self._wake: int | None = None
        self._bells: tuple[int, ...] = ()
        self.due = _NEVER  # libcurl's timer, monotonic seconds

    def close(self) -> None:
        self._epoll.close()

    def ring_on(self, fd: int) -> None:
        """Report `fd` from `wait` for as long as it is readable."""
        self._bells += (fd,)
        self._epoll.register(fd, select.EPOLLIN)

    def wake_on(self, fd: int | None) -> None:
        """Like `ring_on` for the one descriptor that is the caller's, which may be another at each call."""
        if fd != self._wake and self._wake is not None:
            self._forget(self._wake)
        self._wake = fd
        if fd is not None:
            # A connection may have had this number before: what is remembered of it is not true any more.
            self._masks.pop(fd, None)
            self._idle.discard(fd)
            self._watch(fd, select.EPOLLIN)

    def on_timer(self, milliseconds: int) -> None:
        """libcurl's timer callback: -1 for no timer."""
        if milliseconds == 0:
            self.due = 0.0
        elif milliseconds < 0:
            self.due = _NEVER
        else:
            self.due = time.monotonic() + milliseconds / 1000.0

    def on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        """libcurl's socket callback. A connection that falls idle stays watched for input, which saves two system
        calls per request; its next request usually finds it as it is."""
        known = self._masks.get(fd)
        if what == pycurl.POLL_REMOVE:
            if known == select.EPOLLIN:
                self._idle.add(fd)
            elif known is not None:
                del self._masks[fd]
                self._forget(fd)
            return
        mask = _MASK.get(what)
        if mask is None:
            return
        self._idle.discard(fd)
        if known != mask:
            self._masks[fd] = mask
            self._watch(fd, mask)

    def opened(self, fd: int) -> None:
        """A new socket has this number: the kernel dropped what was asked of the one that had it before."""
        self._masks.pop(fd, None)
        self._idle.discard(fd)

    def wait(self, seconds: float) -> tuple[list[tuple[int, int]], list[int]]:
        """Wait up to `seconds` or until libcurl's timer: ([(fd, CSELECT mask)], [readable bells and wake])."""
        if self.due < _NEVER:
            seconds = min(seconds, self.due - time.monotonic())
        ready: list[tuple[int, int]] = []
        rung: list[int] = []
        for fd, events in self._epoll.poll(max(seconds, 0.0), _AT_ONCE):
            if fd == self._wake or fd in self._bells:
                rung.append(fd)
            elif fd in self._idle or fd not in self._masks:
                self._drop(fd)
            elif events == select.EPOLLIN:
                ready.append((fd, pycurl.CSELECT_IN))
            else:
                mask = pycurl.CSELECT_IN if events & select.EPOLLIN else 0
                mask |= pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
                mask |= pycurl.CSELECT_ERR if events & _BROKEN else 0
                ready.append((fd, mask))
        return ready, rung

    def _watch(self, fd: int, mask: int) -> None:
        try:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:
            self._epoll.register(fd, mask)

    def _forget(self, fd: int) -> bool:
        """Stop watching; False when the kernel knows no such descriptor, which is normal after its close."""
        try:
            self._epoll.unregister(fd)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBADF):
                raise
            return False
        return True

    def _drop(self, fd: int) -> None:
        """An event for a connection that nobody uses: its peer closed it."""
        self._idle.discard(fd)
        self._masks.pop(fd, None)
        if self._forget(fd):
            return
        # The socket lives on in a forked process though it was closed here, and can no longer be unregistered by its
        # number. It would report for ever: start over with a new epoll.
        self._epoll.close()
        self._epoll = select.epoll()
        self._masks = {other: mask for other, mask in self._masks.items() if other not in self._idle}
        self._idle.clear()
        for other, mask in self._masks.items():
            self._epoll.register(other, mask)
        for bell in (*self._bells, *(() if self._wake is None else (self._wake,))):
            self._epoll.register(bell, select.EPOLLIN)
