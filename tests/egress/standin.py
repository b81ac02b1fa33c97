"""Servers that stand in for what may not be called: they listen at every address of their network."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

Call = tuple[str, int]
"""Address and port that were called."""

_MARKER = "127.9.9.9"  # where markers come from, and nothing else does


class StandIn:
    """Takes every connection on `ports`, notes which address was called, and closes it without a word."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self._listeners = [_listen(port) for port in ports]
        self._calls: list[Call] = []
        self._markers = 0
        self._accepted = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(5)
        for listener in self._listeners:
            listener.close()

    def calls(self) -> list[Call]:
        """Every call that was made before this one: connections of our own come after them in each port's line."""
        with self._accepted:
            wanted = self._markers + len(self._ports)
        for port in self._ports:
            socket.create_connection(("127.0.0.1", port), 5, source_address=(_MARKER, 0)).close()
        with self._accepted:
            assert self._accepted.wait_for(lambda: self._markers >= wanted, 5), "the stand-in does not answer"
            return list(self._calls)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as waiting:
            for listener in self._listeners:
                waiting.register(listener, selectors.EVENT_READ)
            while not self._ended.is_set():
                for ready, _ in waiting.select(0.1):
                    assert isinstance(ready.fileobj, socket.socket)
                    connection, peer = ready.fileobj.accept()
                    marker = _plain(peer[0]) == _MARKER
                    with self._accepted:
                        if marker:
                            self._markers += 1
                        else:
                            self._calls.append((_plain(connection.getsockname()[0]), connection.getsockname()[1]))
                        self._accepted.notify_all()
                    if marker:
                        connection.close()
                    else:
                        self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        connection.close()


class Answering(StandIn):
    """Answers every complete request with 204 and keeps the connection open. `requests` counts them by address."""

    def __init__(self, *ports: int) -> None:
        super().__init__(*ports)
        self.requests: dict[str, int] = {}

    def _take(self, connection: socket.socket) -> None:
        threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        called = _plain(connection.getsockname()[0])
        buffered = b""
        with connection, contextlib.suppress(ConnectionError):
            while True:
                data = connection.recv(65536)
                if not data:
                    return
                buffered += data
                head, end, body = buffered.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                if end and len(body) >= (int(length[1]) if length else 0):
                    buffered = b""
                    with self._accepted:
                        self.requests[called] = self.requests.get(called, 0) + 1
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def _listen(port: int) -> socket.socket:
    """At every address of both families."""
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", port))
    listener.listen(1024)
    return listener


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:") if "." in host else host
