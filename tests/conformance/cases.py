"""What a case is, and the table of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from tests.conformance.script import Script

Scheme = Literal["http", "tls"]
Connection = Literal["fresh", "reused"]
Size = Literal["7 B", "1 MB", "20 MB"]

LONG_MS = 20_000  # for what ends by itself
SHORT_MS = 600  # for what only the deadline ends

BODIES: dict[Size, bytes] = {
    "7 B": b'{"a":1}',
    "1 MB": bytes(range(250)) * 4_400,  # more than 1 MiB: libcurl, left to itself, would send Expect and wait
    "20 MB": bytes(range(250)) * 80_000,
}


@dataclass(frozen=True)
class Expect:
    """What the transport must say, and how many complete requests the receiver has read in the end.

    `error`: whether an answered request comes with a sentence about its body. Others always come with one.
    """

    verdict: str
    status: int | None = None
    arrives: int = 1
    error: bool = False
    resubmitted: bool | None = None

    def __str__(self) -> str:
        return self.verdict if self.status is None else f"{self.verdict} {self.status}"


Expected = tuple[Expect, ...]
"""Any one of them is right: what the client saw depends on the kernel's timing."""


def answered(status: int = 200, *, error: bool = False) -> Expected:
    return (Expect(ANSWERED, status, 1, error),)


def unknown(status: int | None = None, *, arrives: int = 1) -> Expected:
    return (Expect(UNKNOWN, status, arrives),)


def not_sent(status: int | None = None) -> Expected:
    return (Expect(NOT_SENT, status, 0),)


@dataclass(frozen=True)
class Difference:
    """What one transport says otherwise, and why that is right too. `body`: what it keeps, when that differs."""

    expect: Expected
    reason: str
    body: bytes | None = None


@dataclass(frozen=True)
class Case:
    """One way for a delivery to go.

    `to` is "receiver" (which plays `script`), "closed port", "full backlog" or a whole URL. `server` is the receiver's
    TLS identity; None: the script is played beneath TLS, in place of a handshake. `over_plain_server` names an identity
    for a receiver that wants TLS where the client speaks none. `client` is what the request brings for TLS.
    `silent`: another address, which takes no connections at the receiver's port. `by_deadline`: only the deadline ends
    it, or `within_ms` when an earlier limit does.
    """

    name: str
    group: str
    expect: Expected
    script: Script = ()
    over: tuple[Scheme, ...] = ("http", "tls")
    on: tuple[Connection, ...] = ("fresh", "reused")
    sizes: tuple[Size, ...] = ("7 B",)
    by_deadline: bool = False
    timeout_ms: int = 0
    connect_ms: int = 5_000
    within_ms: int = 0
    to: str = "receiver"
    host: str = ""
    silent: str = ""
    server: str | None = "good"
    over_plain_server: str | None = None
    client: str = ""
    ca_file: Literal["trusted", "missing"] = "trusted"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None  # what is kept of the response's body
    fields: tuple[tuple[str, str], ...] = ()  # of the answer's header, which must be among those reported
    receive_buffer: int | None = None
    differs: Mapping[str, Difference] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        return self.timeout_ms or (SHORT_MS if self.by_deadline else LONG_MS)

    def expected(self, transport: str) -> Expected:
        difference = self.differs.get(transport)
        return self.expect if difference is None else difference.expect

    def kept(self, transport: str) -> bytes | None:
        difference = self.differs.get(transport)
        return self.body if difference is None or difference.body is None else difference.body

    def variants(self) -> list[Variant]:
        return [Variant(self, scheme, on, size) for size in self.sizes for scheme in self.over for on in self.on]


@dataclass(frozen=True)
class Variant:
    """A case over one scheme, on a fresh or reused connection, with a body of one size."""

    case: Case
    scheme: Scheme
    on: Connection
    size: Size

    def __str__(self) -> str:
        return f"{self.case.name} ({self.scheme}, {self.on}, {self.size})"


def every_case() -> tuple[Case, ...]:
    """The whole table; names are unique."""
    from tests.conformance import cases_answers, cases_before, cases_body, cases_head, cases_sending, cases_tls

    modules = (cases_before, cases_tls, cases_sending, cases_head, cases_body, cases_answers)
    table = tuple(case for module in modules for case in module.CASES)
    twice = [name for name, count in Counter(case.name for case in table).items() if count > 1]
    assert not twice, f"taken twice: {twice}"
    return table
