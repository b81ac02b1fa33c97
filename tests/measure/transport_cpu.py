"""`python -m tests.measure.transport_cpu [requests]`: CPU per delivery of each transport, all guards on.

CPU is user and system time of the sending process, all its threads, per request. The receiver is another process, which
keeps connections open. Every outcome must be answered, and the receiver must have counted as many. A delivery's
database work, its signature and its log are not in it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED
from deliveries.transport.base import Request, Transport
from tests.doorman import HOST, Authority

REQUESTS = 5_000
ROUNDS = 5
WARM_UP = 300
AT_ONCE = 64
BODY = b'{"type":"invoice.paid","data":"%s"}' % (b"x" * 965)  # 1,000 bytes
HEADERS = (
    ("Content-Type", "application/json"),
    ("User-Agent", "Relay/1.0"),
    ("webhook-id", "evt_01jdjz5a8ke0qvb9w8y0a1b2c3"),
    ("webhook-timestamp", "1764547200"),
    ("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    ("relay-operation", "op_01jdjz5a8ke0qvb9w8y0a1b2c3"),
    ("relay-epoch", "1"),
)
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Measured(NamedTuple):
    """Seconds per request."""

    user: float
    system: float
    wall: float

    @property
    def cpu(self) -> float:
        return self.user + self.system


def main(count: int) -> None:
    print(f"{count} requests of {len(BODY)} bytes, {AT_ONCE} at once, in {ROUNDS} rounds, after {WARM_UP} others;")
    print("microseconds of CPU per delivery: the median of the rounds, the least and the most\n")
    columns = ("CPU", "least", "most", "user", "system", "per second", "connections")
    print(f"{'transport':11}{'receiver':9}" + "".join(f"{column:>12}" for column in columns))
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority("Measured")
        trusted, own = Path(folder) / "trusted.pem", Path(folder) / "server.pem"
        trusted.write_bytes(authority.pem)
        own.write_bytes(b"".join(authority.issue(HOST)))
        for name in ("curl", "requests"):
            for scheme, chain in (("http", None), ("https", str(own))):
                _cell(name, scheme, chain, str(trusted), count)


def _cell(name: str, scheme: str, chain: str | None, trusted: str, count: int) -> None:
    with receiving(chain) as (port, asked):
        transport = _made(name, trusted)
        url = f"{scheme}://{HOST}:{port}/hooks/relay?tenant=measured"
        _measured(transport, url, WARM_UP)
        rounds = [_measured(transport, url, count // ROUNDS) for _ in range(ROUNDS)]
        transport.close()
        asked.send(None)
        arrived, connections = asked.recv()
    assert arrived == WARM_UP + count // ROUNDS * ROUNDS, f"{arrived} requests arrived"
    costs = [each.cpu * 1e6 for each in rounds]
    middle = sorted(rounds, key=lambda each: each.cpu)[ROUNDS // 2]
    figures = (statistics.median(costs), min(costs), max(costs), middle.user * 1e6, middle.system * 1e6)
    numbers = (*figures, 1 / middle.wall, connections)
    print(f"{name:11}{scheme:9}" + "".join(f"{number:12.0f}" for number in numbers), flush=True)


def _made(name: str, trusted: str) -> Transport:
    policy = EgressPolicy(allow=[ip_network("127.0.0.0/8")])
    if name == "curl":
        from deliveries.transport.curl import CurlTransport

        return CurlTransport(policy, ca_file=trusted, look_up=lambda host: ("127.0.0.1",))
    from deliveries.transport.requests import RequestsTransport

    return RequestsTransport(policy, ca_file=trusted, look_up=lambda host: ("127.0.0.1",))


def _measured(transport: Transport, url: str, count: int) -> Measured:
    """Send so many requests, with AT_ONCE in flight."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    sent = ended = 0
    while ended < count:
        while sent < count and transport.in_flight < AT_ONCE:
            transport.submit(Request(sent, url, HEADERS, BODY, 30_000))
            sent += 1
        for outcome in transport.poll(5.0):
            assert (outcome.verdict, outcome.body) == (ANSWERED, b"{}"), outcome
            ended += 1
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Measured(user / count, system / count, wall / count)


@contextmanager
def receiving(chain: str | None) -> Iterator[tuple[int, Connection]]:
    """A receiver in a process of its own: its port, and who tells (requests, connections) when it is asked."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_receive, args=(theirs, chain), daemon=True)
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.terminate()
        process.join(5)


def _receive(parent: Connection, chain: str | None) -> None:
    asyncio.run(_serve(parent, chain))


async def _serve(parent: Connection, chain: str | None) -> None:
    context = None
    if chain is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
    counts = [0, 0]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Receiving(counts), "127.0.0.1", 0, ssl=context, backlog=1024)
    parent.send(server.sockets[0].getsockname()[1])
    asked = asyncio.Event()
    loop.add_reader(parent.fileno(), asked.set)
    await asked.wait()
    parent.send(counts)


class _Receiving(asyncio.Protocol):
    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self._buffered = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._counts[1] += 1

    def data_received(self, data: bytes) -> None:
        self._buffered += data
        _, end, body = self._buffered.partition(b"\r\n\r\n")
        if end and len(body) >= len(BODY):
            self._buffered = body[len(BODY) :]
            self._counts[0] += 1
            self._transport.write(_OK)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relay.settings")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS)
