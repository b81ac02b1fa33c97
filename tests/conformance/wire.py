"""One connection of the scripted receiver, in the clear or under TLS, down to the bytes beneath TLS.

Everything that is read goes through a `Counter`: it alone says how many complete requests the receiver has had.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time

from tests.conformance.counting import Counter

LONGEST_S = 30.0  # no wait lasts longer, whatever a script says
_QUIET_S = 0.03
_PIECE = 64 * 1024
_LONGEST_HEAD = 128 * 1024


class Over(Exception):
    """The connection has ended, or the conversation is to stop."""


class Unused(Over):
    """The client has closed a connection, kept open for it, without another request."""


class Wire:
    """A connection in the clear, or a listener. `stop` is readable when everything is to end."""

    def __init__(self, sock: socket.socket, stop: int, *, listening: bool = False) -> None:
        self.counter = Counter()
        self.sock = sock
        self.said = bytearray()  # what was written as an answer, as much of it as can be a head
        self.warmed_at = -1  # bytes read when the script began, on a connection that was used before
        self._stop = stop
        sock.setblocking(False)
        if not listening:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Waiting

    def until_readable(self) -> None:
        """Wait for bytes or the connection's end; read nothing. `Over` when everything is to end."""
        self._until(select.POLLIN)

    def until_gone(self) -> None:
        """Wait until the client has closed the connection, without reading what it sent."""
        self._until(select.POLLRDHUP)

    def _until(self, events: int) -> None:
        waiting = select.poll()
        waiting.register(self.sock, events)
        waiting.register(self._stop, select.POLLIN)
        ready = waiting.poll(LONGEST_S * 1000)
        if not any(fd == self.sock.fileno() for fd, _ in ready):
            raise Over

    def pause(self, seconds: float) -> None:
        """Let time pass, unless the client goes or everything is to end."""
        waiting = select.poll()
        waiting.register(self.sock, select.POLLRDHUP)
        waiting.register(self._stop, select.POLLIN)
        if waiting.poll(seconds * 1000):
            raise Over

    # Reading

    def read(self, most: int = _PIECE) -> bytes:
        """The next bytes, at most so many; `Over` at the end."""
        try:
            data = self._receive(most)
        except OSError:
            data = b""
        if not data:
            raise Unused if self.counter.bytes == self.warmed_at else Over
        self.counter.feed(data)
        return data

    def _receive(self, most: int) -> bytes:
        while True:
            try:
                return self.sock.recv(most)
            except BlockingIOError:
                self.until_readable()

    def peek(self) -> None:
        """Wait for bytes and leave them unread; `Over` when the end came instead."""
        self.until_readable()
        try:
            first = self.sock.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if first in (b"", b"\x15"):  # the end, or the alert with which TLS says so
            raise Unused if self.counter.bytes == self.warmed_at else Over

    def drain(self) -> None:
        """Read until the client closes; when everything is to end, until nothing more comes."""
        with contextlib.suppress(Over):
            while True:
                self.read()
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        until = time.monotonic() + LONGEST_S
        with contextlib.suppress(Over):
            while time.monotonic() < until and waiting.poll(_QUIET_S * 1000):
                self._stop_ignored_read()

    def _stop_ignored_read(self) -> None:
        try:
            data = self._received_now()
        except OSError:
            data = None
        if data is None:
            raise Over
        self.counter.feed(data)

    def _received_now(self) -> bytes | None:
        """What is there, None at the end. Under TLS it may be less than a whole record, and then empty."""
        return self.sock.recv(_PIECE) or None

    # Writing

    def send(self, data: bytes) -> None:
        self.note(data)
        self.send_raw(data)

    def note(self, data: bytes) -> None:
        self.said += data[: max(_LONGEST_HEAD - len(self.said), 0)]

    def send_raw(self, data: bytes) -> None:
        """Write beneath TLS."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.sock.send(rest) :]
            except BlockingIOError:
                self._until(select.POLLOUT)

    # Ending

    def farewell(self) -> None:
        """Say that nothing more comes, where the protocol has a word for it."""

    def alert(self) -> None:
        """Say that something is fatally wrong, where the protocol has a word for it."""

    def half_close(self) -> None:
        self.farewell()
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class TlsWire(Wire):
    """The same under TLS; the library works on memory only, so that every byte on the socket is ours to decide."""

    def __init__(self, sock: socket.socket, stop: int, context: ssl.SSLContext) -> None:
        super().__init__(sock, stop)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self) -> None:
        """`Over` when it fails; the client has been told why. What follows the handshake is left in the kernel."""
        wanted, header = 5, b""  # a record's header, then the record
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._flush()
                data = super()._receive(wanted)
                self._fill(data)
                header += data
                if wanted > len(data):
                    wanted -= len(data)
                elif len(header) == 5:
                    wanted = int.from_bytes(header[3:]) or 5
                else:
                    wanted, header = 5, b""
            except ssl.SSLError:
                raise Over from None
            finally:
                self._flush()

    def _receive(self, most: int) -> bytes:
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                self._fill(super()._receive(_PIECE))
            except ssl.SSLError:
                return b""

    def _received_now(self) -> bytes | None:
        sealed = super()._received_now()
        if sealed is None:
            return None
        self._fill(sealed)
        data = b""
        with contextlib.suppress(ssl.SSLError):
            while piece := self._tls.read(_PIECE):
                data += piece
        return data

    def _fill(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def send(self, data: bytes) -> None:
        self.note(data)
        for at in range(0, len(data), _PIECE):
            self._tls.write(data[at : at + _PIECE])
            self._flush()

    def _flush(self) -> None:
        self.send_raw(self._outgoing.read())

    def farewell(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()  # writes close_notify, then wants the client's
        self._flush()

    def alert(self) -> None:
        # What the library cannot decrypt it answers with an alert, under the keys of the connection.
        self._incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        with contextlib.suppress(ssl.SSLError):
            self._tls.read(1)
        self._flush()
