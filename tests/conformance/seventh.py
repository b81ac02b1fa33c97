"""A receiver that answers every request, and after every seventh answer closes that connection without a word.

It closes its own side (close_notify and FIN, under TLS) and goes on reading: a request that was on its way meanwhile
is counted like all others and never answered. So what was written completely is counted, to the one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import ssl
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from tests.conformance.script import Read
from tests.conformance.wire import Over, TlsWire, Wire

EVERY = 7
_KEY = re.compile(rb"\r\nx-key: (\d+)\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: close\r\n", re.IGNORECASE)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Seventh:
    """Serves on `port`, each connection in a thread of its own.

    `complete` counts requests by the number in their header x-key; it is right when the `with` block has ended.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.complete: Counter[int] = Counter()
        self.connections = 0
        self.answers = 0
        self.closed = 0
        self._context = context
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.eventfd_write(self._stop, 1)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "the receiver did not end"
        os.close(self._stop)

    def _accept(self) -> None:
        watch = Wire(self._listener, self._stop, listening=True)
        with contextlib.closing(self._listener), contextlib.suppress(Over):
            while True:
                watch.until_readable()
                with contextlib.suppress(BlockingIOError):
                    sock, _ = self._listener.accept()
                    self._threads = [thread for thread in self._threads if thread.is_alive()]
                    self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                    self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        wire: Wire
        with contextlib.closing(sock):
            with contextlib.suppress(Over, OSError):
                if self._context is None:
                    wire = Wire(sock, self._stop)
                else:
                    wire = secured = TlsWire(sock, self._stop, self._context)
                    secured.shake_hands()
                self._converse(wire)
                wire.drain()
            with self._lock:
                self.connections += 1
                self.complete.update(_keys(wire))

    def _converse(self, wire: Wire) -> None:
        while True:
            Read().play(wire)
            number = next(self._numbers)
            with self._lock:
                self.answers += 1
            wire.send(_OK)
            if number % EVERY == 0:
                with self._lock:
                    self.closed += 1
                wire.half_close()  # fails where the client has closed it already
                return
            if _CLOSE.search(wire.counter.heads[-1]):
                return


def _keys(wire: Wire) -> list[int]:
    """The numbers of the complete requests that came on a connection."""
    found = (_KEY.search(head) for head in wire.counter.heads[: wire.counter.complete])
    return [int(key[1]) for key in found if key is not None]
