"""A program of receivers that misbehave, thousands of connections in one process (asyncio, so epoll).

`python -m tests.hostile.crowd [certificate-and-key.pem]` listens on one port of 127.0.0.1 for each behaviour, over TLS
when a certificate is given, prints {"behaviour": port} as one line of JSON, and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable

from tests.hostile.size import SOAK

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

DRIP_S = 2.0 if SOAK else 0.2  # so that thousands of drips are no flood
OK = b"HTTP/1.1 200 OK\r\n"
SMALL_WINDOW = 4096  # bytes that the kernel takes for a receiver that reads nothing


async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await whole_request(reader)
        writer.write(OK + b"Content-Length: 2\r\n\r\nok")
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads everything, says nothing."""
    while await reader.read(65536):
        pass


async def slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await drip(writer, b"H", b"TTP/1.1 200 OK\r\nX: ", b"x")


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await drip(writer, OK + b"Content-Length: 1000000\r\n\r\n", b"x")


async def slow_continue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await drip(writer, b"HTTP/1.1 100 Continue\r\n\r\n")


async def slow_fat_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head that grows by a little more than 20 kB with each drip."""
    await whole_request(reader)
    await drip(writer, OK, (b"X: " + b"x" * 1000 + b"\r\n") * 20)


async def slow_many_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many as are taken soon, and no more of them afterwards."""
    await whole_request(reader)
    await drip(writer, OK + b"X: 1\r\n" * 990, b"X")


async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(3600)


async def endless_continue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await flood(writer, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await flood(writer, OK, (b"X: " + b"x" * 900 + b"\r\n") * 4)


async def many_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await flood(writer, OK, b"X: 1\r\n" * 500)


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    await flood(writer, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n")


BOMB = gzip.compress(bytes(50_000_000))


async def gzip_bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """48 kB that would become 50 MB."""
    await whole_request(reader)
    # It says that it closes: a connection that is closed just as the next request goes out leaves that unknown.
    headers = b"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)
    writer.write(OK + headers + BOMB)
    await writer.drain()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await whole_request(reader)
    writer.write(b"\x00\xff" * 200)
    await writer.drain()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """In the middle of the head of its answer."""
    await whole_request(reader)
    writer.write(OK)
    await writer.drain()
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


BEHAVIOURS: tuple[Behaviour, ...] = (
    good, silent, slow_head, slow_body, slow_continue, slow_fat_head, slow_many_headers, never_reads, endless_continue,
    endless_head, many_headers, endless_body, gzip_bomb, garbage, reset,
)  # fmt: skip


async def whole_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))


async def drip(writer: asyncio.StreamWriter, *pieces: bytes) -> None:
    """One piece at a time, the last one for ever."""
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(DRIP_S)
    while True:
        writer.write(pieces[-1])
        await writer.drain()
        await asyncio.sleep(DRIP_S)


async def flood(writer: asyncio.StreamWriter, first: bytes, again: bytes) -> None:
    writer.write(first)
    while not writer.transport.is_closing():
        writer.write(again)
        await writer.drain()
        await asyncio.sleep(0)  # the others' turn


def guarded(behaviour: Behaviour) -> Behaviour:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
        except (OSError, EOFError):
            pass  # the sender ended it
        finally:
            writer.close()

    return serve


def listener(behaviour: Behaviour) -> socket.socket:
    bound = socket.socket()
    if behaviour is never_reads:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
    bound.bind(("127.0.0.1", 0))
    return bound


async def main(certificate: str | None) -> None:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    ports = {}
    for behaviour in BEHAVIOURS:
        bound = listener(behaviour)
        ports[behaviour.__name__] = bound.getsockname()[1]
        await asyncio.start_server(guarded(behaviour), sock=bound, ssl=context, backlog=4096)
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # a connection that broke is what this is for
    loop.run_until_complete(main(*sys.argv[1:] or (None,)))
    os._exit(0)  # without taking leave of thousands of connections
