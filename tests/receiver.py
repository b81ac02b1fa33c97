"""A receiver for tests: a real HTTP/1.1 server on 127.0.0.1 whose every answer, byte and disconnection is scripted.

    with Receiver() as receiver:
        receiver.answers.append(Answer(status=503, headers=(("Retry-After", "7"),)))
        ...
        receiver.wait_for(1)
        assert receiver.requests[0].headers["webhook-id"] == "evt_…"

Each connection has a thread of its own. `requests` lists the requests that arrived completely, and only those.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

LONGEST_HANG = 30.0  # seconds; a test that forgot to stop its receiver ends all the same


@dataclass(frozen=True, slots=True)
class Received:
    """One request. Header names are in lower case; `at` is monotonic seconds; `connection` counts from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    connection: int
    number: int  # of the request on its connection, from 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do about one request.

    `delay` seconds pass first, then `hang` (say nothing), `close_before_answer` (FIN) or `reset_before_answer` (RST)
    apply; otherwise `raw` goes on the wire as it is, or status, headers and body do as a well-formed response, at one
    byte per `drip` seconds when that is set. Afterwards `close` or `reset` end the connection without a word.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    raw: bytes | None = None
    delay: float = 0.0
    drip: float = 0.0
    hang: bool = False
    close_before_answer: bool = False
    reset_before_answer: bool = False
    close: bool = False
    reset: bool = False

    def as_bytes(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{name}: {value}" for name, value in self.headers)]
        if self.status != 204:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class _Ended(Exception):
    """The connection is over."""


class Receiver:
    """Serves until the `with` block ends. Scripts, in the order in which they are asked:

    - `on_accept(connection)`: "serve", "hang", "close" or "reset" a new connection
    - `before_body(received)`: an answer given before the body is read (which then never is), or None
    - `answers`: a queue, one answer per complete request; when it is empty, `answer(received)`
    """

    def __init__(
        self,
        answer: Callable[[Received], Answer] | None = None,
        *,
        on_accept: Callable[[int], str] | None = None,
        before_body: Callable[[Received], Answer | None] | None = None,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        self.answer = answer or (lambda _: Answer())
        self.answers: deque[Answer] = deque()
        self.on_accept = on_accept
        self.before_body = before_body
        self.requests: list[Received] = []
        self.connections = 0
        self._tls = tls
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """The root; append a path for another one."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            still_open = list(self._open)
        for connection in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)

    def wait_for(self, count: int, timeout: float = 10.0) -> list[Received]:
        """Wait until `count` complete requests arrived and give them; TimeoutError after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests arrived in {timeout} s")
            return list(self.requests)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._start(self._serve, connection, self.connections)

    def _serve(self, connection: socket.socket, number: int) -> None:
        with self._changed:
            self._open.add(connection)
        try:
            how = self.on_accept(number) if self.on_accept else "serve"
            if how == "hang":
                self._stopping.wait(LONGEST_HANG)
            elif how == "reset":
                _reset_on_close(connection)
            elif how == "serve":
                # TCP_NODELAY, so that scripted bytes leave when they are written.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    with self._changed:
                        self._open.discard(connection)
                    connection = self._tls.wrap_socket(connection, server_side=True)
                    with self._changed:
                        self._open.add(connection)
                self._converse(connection, number)
        except (OSError, _Ended):
            pass  # the other side, or the script, ended it
        finally:
            connection.close()
            with self._changed:
                self._open.discard(connection)

    def _converse(self, connection: socket.socket, number: int) -> None:
        buffered = b""
        count = 0
        while not self._stopping.is_set():
            while b"\r\n\r\n" not in buffered:
                buffered += _receive(connection)
            head, _, buffered = buffered.partition(b"\r\n\r\n")
            count += 1
            received = _parse(head, number, count)
            early = self.before_body(received) if self.before_body else None
            if early is not None:
                self._perform(connection, early)
                # The rest is left in the socket; the connection stays open until the other side gives up.
                self._stopping.wait(LONGEST_HANG)
                return
            length = int(received.headers.get("content-length", "0"))
            pieces, have = [buffered], len(buffered)
            while have < length:
                pieces.append(_receive(connection))
                have += len(pieces[-1])
            whole = b"".join(pieces)
            body, buffered = whole[:length], whole[length:]
            received = Received(received.method, received.path, received.headers, body, time.monotonic(), number, count)
            with self._changed:
                self.requests.append(received)
                answer = self.answers.popleft() if self.answers else None
                self._changed.notify_all()
            self._perform(connection, answer or self.answer(received))

    def _perform(self, connection: socket.socket, answer: Answer) -> None:
        if answer.delay:
            self._stopping.wait(answer.delay)
        if answer.hang:
            self._stopping.wait(LONGEST_HANG)
            raise _Ended
        if answer.reset_before_answer:
            _reset_on_close(connection)
            raise _Ended
        if answer.close_before_answer:
            raise _Ended
        data = answer.as_bytes()
        if answer.drip:
            for at in range(len(data)):
                connection.sendall(data[at : at + 1])
                if self._stopping.wait(answer.drip):
                    raise _Ended
        else:
            connection.sendall(data)
        if answer.reset:
            _reset_on_close(connection)
        if answer.close or answer.reset:
            raise _Ended


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise _Ended
    return data


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _parse(head: bytes, connection: int, number: int) -> Received:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Received(method, path, headers, b"", time.monotonic(), connection, number)
