"""A fast receiver: one thread and one event loop, which accepts everything at once, or holds its answers until told.

It keeps its own count. `tests/receiver.py` is for misbehaviour; this one is for quantity, and for answers at a moment
that the test chooses.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Coroutine
from functools import cached_property
from types import TracebackType
from typing import Self, TypeVar

from tests.support.waiting import wait_until

Result = TypeVar("Result")

PATIENCE_S = 10.0


class Arrived:
    """One complete request: `head` as it came, `body` without its framing."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body

    @cached_property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @cached_property
    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        pairs = (line.partition(":") for line in self.head.decode("latin-1").split("\r\n")[1:])
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def event(self) -> str:
        return self.headers["webhook-id"]


class _Connection(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.buffered = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.sink.connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.sink.connections.discard(self.transport)

    def data_received(self, data: bytes) -> None:
        self.buffered += data
        while True:
            head, end, rest = self.buffered.partition(b"\r\n\r\n")
            if not end:
                return
            length = _content_length(head)
            if len(rest) < length:
                return
            self.buffered = rest[length:]
            self.sink.take(Arrived(head, rest[:length]), self.transport)


class Sink:
    """Serves on 127.0.0.1 while the `with` block lasts. `listener`: a socket that is bound already, but not listening.

    `held`: requests are counted and not answered until `let_go`.
    """

    def __init__(self, listener: socket.socket | None = None, *, held: bool = False) -> None:
        self.listener = listener or reserve()
        self.port: int = self.listener.getsockname()[1]
        self.requests: list[Arrived] = []
        self.connections: set[asyncio.Transport] = set()
        self._held = held
        self._waiting: list[asyncio.Transport] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.listener.setblocking(False)
        self._thread.start()
        self._call(self._loop.create_server(lambda: _Connection(self), sock=self.listener, backlog=1024))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self.listener.close()

    @property
    def url(self) -> str:
        """The root; append a path for another one."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def events(self) -> Counter[str]:
        """How often each `webhook-id` arrived."""
        return Counter(request.event for request in list(self.requests))

    def wait_for(self, count: int, seconds: float = PATIENCE_S) -> list[Arrived]:
        """Wait until `count` complete requests arrived, and give them."""
        wait_until(lambda: len(self.requests) >= count, seconds, f"{count} requests at the receiver")
        return list(self.requests)

    def let_go(self) -> int:
        """Answer 200 to all that is held, and to everything from now on; how many of the held were still connected.

        When this returns the answers are with the kernel: the receiver has said its word, whoever hears it.
        """

        async def answer() -> int:
            self._held = False
            waiting, self._waiting = [one for one in self._waiting if not one.is_closing()], []
            for transport in waiting:
                transport.write(OK)
                assert not transport.get_write_buffer_size()
            return len(waiting)

        return self._call(answer())

    def take(self, request: Arrived, transport: asyncio.Transport) -> None:
        self.requests.append(request)
        if self._held:
            self._waiting.append(transport)
        else:
            transport.write(OK)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _close(self) -> None:
        for transport in list(self.connections):
            transport.abort()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    def _call(self, coroutine: Coroutine[object, object, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def reserve() -> socket.socket:
    """A port on 127.0.0.1 that is taken, and where nobody listens yet: a connection to it is refused."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
