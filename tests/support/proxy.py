"""A proxy in front of PostgreSQL that cuts connections where it hurts: inside a statement, and around a COMMIT.

    with Proxy(socket_dir / ".s.PGSQL.5432") as proxy:
        lost = proxy.plan(Fault(Where.AFTER_COMMIT, statement="operation.settle"))
        ...                                    # a client of proxy.url(…) settles: committed, and never told so
        wait_until(lambda: lost.fired, 10, "the answer to COMMIT was swallowed")

It listens on 127.0.0.1 and reads the framing of protocol 3 in both directions, one message at a time, without TLS.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.support.cuts import Cut, Fault, Session, Where

__all__ = ["Fault", "Proxy", "Where"]

Result = TypeVar("Result")

PATIENCE_S = 10.0
ENCRYPTION = frozenset({80877103, 80877104})
"""The codes of SSLRequest and GSSENCRequest. Both are declined."""
CANCEL = 80877102


class Proxy:
    """Stands on 127.0.0.1 in front of a server, a Unix socket's path or a (host, port), while the `with` block lasts.

    All methods may be called from any thread. `count`: how often each kind of cut was made.
    """

    def __init__(self, target: Path | tuple[str, int]) -> None:
        self.target = target
        self.faults: list[Fault] = []
        self.count: Counter[str] = Counter()
        self.connections = 0
        self.refusing = False
        self._open: set[tuple[asyncio.WriteTransport, asyncio.WriteTransport]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._begin, "127.0.0.1", 0, backlog=512)

        self._server = self._wait(asyncio.run_coroutine_threadsafe(listen(), self._loop))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def close() -> None:
            self._server.close()
            self._cut_open()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._wait(asyncio.run_coroutine_threadsafe(close(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def url(self, *, dbname: str, user: str) -> str:
        """A DATABASE_URL that goes through here."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}?sslmode=disable"

    def plan(self, fault: Fault) -> Fault:
        """Have it happen from now on; the same object tells whether it has."""
        self.faults.append(fault)
        return fault

    def forget(self) -> None:
        """No planned fault happens any more."""
        self.faults.clear()

    def refuse(self, refusing: bool) -> None:
        """Whether new connections are ended at once (the ones that there are go on)."""
        self.refusing = refusing

    def cut_all(self) -> int:
        """End every connection now; how many there were."""
        return self._call(self._cut_open)

    # --- the loop's side ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Callable[[], Result]) -> Result:
        async def run() -> Result:
            return work()

        return self._wait(asyncio.run_coroutine_threadsafe(run(), self._loop))

    def _wait(self, promised: Future[Result]) -> Result:
        return promised.result(PATIENCE_S)

    def _cut_open(self) -> int:
        open_now = list(self._open)
        for transport in (one for pair in open_now for one in pair):
            transport.abort()
        return len(open_now)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.refusing:
                self.connections += 1
                await self._converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError, Cut):
            pass  # one side ended it, or we did
        except asyncio.CancelledError:
            pass  # the proxy closes
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await _startup(reader)
        while _code(startup) in ENCRYPTION:
            writer.write(b"N")
            startup = await _startup(reader)
        if isinstance(self.target, Path):
            answers, server = await asyncio.open_unix_connection(str(self.target))
        else:
            answers, server = await asyncio.open_connection(*self.target)
        transports = (writer.transport, server.transport)
        self._open.add(transports)
        try:
            server.write(startup)
            if _code(startup) == CANCEL:
                await answers.read()
                return
            words = startup[8:].split(b"\0")
            application = dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()
            session = Session(self.faults, self.count, application)
            ways = [
                asyncio.ensure_future(_pump(reader, server, session.from_client)),
                asyncio.ensure_future(_pump(answers, writer, session.from_server)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._open.discard(transports)
            for transport in transports:
                transport.abort()


async def _startup(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack("!i", head)[0] - 4)


def _code(startup: bytes) -> int:
    return int(struct.unpack("!i", startup[4:8])[0])


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, judge: Callable[[bytes, bytes, bytes], bytes]
) -> None:
    """Carry whole messages from one side to the other, as `judge` says, until one side ends."""
    buffered = b""
    while data := await reader.read(65536):
        buffered += data
        at, out = 0, []
        try:
            while len(buffered) - at >= 5:
                end = at + 1 + int.from_bytes(buffered[at + 1 : at + 5], "big")
                if end > len(buffered):
                    break
                out.append(judge(buffered[at : at + 1], buffered[at + 5 : end], buffered[at:end]))
                at = end
        except Cut as cut:
            out.append(cut.before)
            raise
        finally:
            writer.write(b"".join(out))
        buffered = buffered[at:]
        await writer.drain()
