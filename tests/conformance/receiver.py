"""A receiver whose every byte, silence and disconnection is a script (`script.py`), played on a real socket.

    with Conversation((Read(), Send(b"HTTP/1.1 200 OK\\r\\n"), Fin())) as conversation: ...

A conversation has a port and a thread of its own. It plays its script on one connection; on those that come after it
(a second send of the same request among them) it answers 200. `arrived` counts the complete requests of all.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.conformance.counting import status_given
from tests.conformance.script import OK, Read, Script
from tests.conformance.wire import LONGEST_S, Over, TlsWire, Unused, Wire


class Conversation:
    """Plays `script` on one connection, under TLS when there is a `context`.

    `warm`: one request is answered before, on the same connection when the client keeps it; the script begins after
    `warmed` was set. `ready` is set when the script has come to its first step that waits for the client, or ended.
    """

    def __init__(
        self,
        script: Script,
        *,
        context: ssl.SSLContext | None = None,
        warm: bool = False,
        receive_buffer: int | None = None,
    ) -> None:
        self._script = script
        self._context = context
        self._warm = warm
        self.at = -1  # which step of the script is being played
        self._played = False
        self._warmed_up = 0
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._listener = socket.socket()
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.wires: list[Wire] = []
        self.warmed = threading.Event()
        self.ready = threading.Event()
        self.broke: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"conversation-{self.port}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.join()

    @property
    def arrived(self) -> int:
        """Complete requests that the receiver has read, without the one before the script."""
        return sum(wire.counter.complete for wire in self.wires) - self._warmed_up

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies that the receiver has read, complete or not, that before the script included."""
        return sum(wire.counter.body_bytes for wire in self.wires)

    @property
    def sums(self) -> list[int]:
        """CRC-32 of the bodies of all complete requests."""
        return [total for wire in self.wires for total in wire.counter.sums]

    @property
    def statuses(self) -> list[int]:
        """What the receiver answered, in full: the first answer on each connection."""
        given = [status_given(bytes(wire.said)) for wire in self.wires]
        return [status for status in given if status is not None]

    @property
    def heads(self) -> list[bytes]:
        return [head for wire in self.wires for head in wire.counter.heads]

    def stop(self) -> None:
        """Take no more connections, read what has come, end. `join` waits for it."""
        os.eventfd_write(self._stop, 1)
        self.warmed.set()

    def join(self) -> None:
        self._thread.join(LONGEST_S + 5)
        if self._thread.is_alive():
            raise TimeoutError("a scripted receiver did not end")
        os.close(self._stop)
        if self.broke is not None:
            raise self.broke

    def _run(self) -> None:
        try:
            with contextlib.closing(self._listener):
                for sock in self._connections():
                    with contextlib.closing(sock), contextlib.suppress(Over, OSError):
                        self._converse(sock)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self.broke = error
        finally:
            self.ready.set()

    def _connections(self) -> Iterator[socket.socket]:
        watch = Wire(self._listener, self._stop, listening=True)
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                try:
                    watch.until_readable()
                except Over:
                    return
            else:
                yield sock

    def _converse(self, sock: socket.socket) -> None:
        wire: Wire
        if self._context is None:
            wire = Wire(sock, self._stop)
            self.wires.append(wire)
        else:
            wire = secured = TlsWire(sock, self._stop, self._context)
            self.wires.append(wire)
            try:
                secured.shake_hands()
            except (Over, OSError):
                self._played = self._played or not self._warm
                raise
        if self._warm and not self.warmed.is_set():
            Read().play(wire)
            self._warmed_up = 1
            wire.send(OK)
            self.warmed.wait(LONGEST_S)
            wire.warmed_at = wire.counter.bytes
            wire.said.clear()
        try:
            if self._played:
                self._serve(wire)
            else:
                self._play(wire)
        finally:
            if wire.sock.fileno() >= 0:
                wire.drain()

    def _play(self, wire: Wire) -> None:
        self._played = True
        try:
            for step in self._script:
                self.at += 1
                if step.waits:
                    self.ready.set()
                step.play(wire)
        except Unused:
            self._played, self.at = False, -1  # the client keeps no connection: its request comes on the next one
        finally:
            self.ready.set()

    @staticmethod
    def _serve(wire: Wire) -> None:
        while True:
            Read().play(wire)
            wire.send(OK)
