"""The language of scripts: what a receiver does on one connection, as a tuple of steps.

(ReadBytes(100), Send(b"HTTP/1.1 413 Too Large\\r\\n\\r\\n"), Rst())
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tests.conformance.wire import Over, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Step:
    """One thing that the receiver does. `waits` for the client: on it depends when the step begins or ends."""

    waits: ClassVar[bool] = False

    def play(self, wire: Wire) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Read(Step):
    """Read one whole request."""

    waits = True

    def play(self, wire: Wire) -> None:
        complete = wire.counter.complete
        while wire.counter.complete == complete:
            wire.read()


@dataclass(frozen=True)
class ReadHead(Step):
    """Read until the head has come; some of the body may come with it."""

    waits = True

    def play(self, wire: Wire) -> None:
        heads = len(wire.counter.heads)
        while len(wire.counter.heads) == heads:
            wire.read(1)


@dataclass(frozen=True)
class ReadBytes(Step):
    """Read exactly so many bytes and leave the rest in the kernel."""

    count: int
    waits = True

    def play(self, wire: Wire) -> None:
        until = wire.counter.bytes + self.count
        while wire.counter.bytes < until:
            wire.read(min(until - wire.counter.bytes, 65536))


@dataclass(frozen=True)
class Unread(Step):
    """Wait until bytes of the request have come, and leave them in the kernel."""

    waits = True

    def play(self, wire: Wire) -> None:
        wire.peek()


@dataclass(frozen=True)
class Send(Step):
    """Write these bytes, `times` times."""

    data: bytes
    times: int = 1

    def play(self, wire: Wire) -> None:
        for _ in range(self.times):
            wire.send(self.data)


@dataclass(frozen=True)
class Drip(Step):
    """Write these bytes, one at a time, with so many seconds between."""

    data: bytes
    every: float

    def play(self, wire: Wire) -> None:
        for at in range(len(self.data)):
            wire.send(self.data[at : at + 1])
            wire.pause(self.every)


@dataclass(frozen=True)
class Endless(Step):
    """Write these bytes again and again, until the client goes."""

    data: bytes
    every: float = 0.0
    waits = True

    def play(self, wire: Wire) -> None:
        while True:
            wire.send(self.data)
            wire.pause(self.every)


@dataclass(frozen=True)
class Gap(Step):
    """Let time pass, so that the client sees apart what is written before and after."""

    seconds: float = 0.02

    def play(self, wire: Wire) -> None:
        wire.pause(self.seconds)


@dataclass(frozen=True)
class Hang(Step):
    """Neither read nor write until the client goes."""

    waits = True

    def play(self, wire: Wire) -> None:
        wire.until_gone()


@dataclass(frozen=True)
class Fin(Step):
    """Close as a well-behaved server does. The kernel makes it a reset when bytes of the client are left unread."""

    def play(self, wire: Wire) -> None:
        wire.farewell()
        wire.close()
        raise Over


@dataclass(frozen=True)
class Ragged(Step):
    """Close the connection beneath TLS, which is not told."""

    def play(self, wire: Wire) -> None:
        wire.close()
        raise Over


@dataclass(frozen=True)
class Rst(Step):
    """Reset the connection."""

    def play(self, wire: Wire) -> None:
        wire.reset()
        raise Over


@dataclass(frozen=True)
class HalfClose(Step):
    """Write no more; go on reading."""

    def play(self, wire: Wire) -> None:
        wire.half_close()


@dataclass(frozen=True)
class Notify(Step):
    """close_notify, and leave the connection beneath TLS open."""

    def play(self, wire: Wire) -> None:
        wire.farewell()


@dataclass(frozen=True)
class Alert(Step):
    """A fatal alert of TLS."""

    def play(self, wire: Wire) -> None:
        wire.alert()


@dataclass(frozen=True)
class Beneath(Step):
    """Bytes beneath TLS."""

    data: bytes

    def play(self, wire: Wire) -> None:
        wire.send_raw(self.data)


Script = tuple[Step, ...]
