"""Runs many variants at once: one transport with many requests in flight, a scripted receiver for each."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from deliveries.egress import EgressPolicy
from deliveries.transport.base import PUBLIC, Outcome, Request, Tls, Transport
from tests.conformance.cases import BODIES, LONG_MS, Connection, Scheme, Variant
from tests.conformance.certificates import HOST, identities
from tests.conformance.receiver import Conversation
from tests.conformance.script import Script

AT_ONCE = 40
GRACE_S = 30.0  # after its deadline; a request that is silent for longer is not waited for
HEADERS = (("Content-Type", "application/json"), ("webhook-id", "evt_1"), ("webhook-signature", "v1,AAAA"))
POLICY_NETWORKS = tuple(
    ipaddress.ip_network(text) for text in ("127.0.0.0/8", "255.255.255.255/32", "224.0.0.1/32", "fe80::/10")
)


def policy() -> EgressPolicy:
    """Allows this machine, and places that the kernel itself refuses to connect to."""
    return EgressPolicy(allow=POLICY_NETWORKS)


@dataclass(frozen=True)
class Trial:
    """One request to run: what the receiver does, and what is sent to it."""

    name: str
    script: Script
    scheme: Scheme
    on: Connection
    body: bytes
    timeout_ms: int = LONG_MS
    connect_ms: int = 5_000
    to: str = "receiver"
    host: str = ""
    server: str | None = "good"
    tls: Tls = PUBLIC
    headers: tuple[tuple[str, str], ...] = ()
    receive_buffer: int | None = None
    silent: str = ""
    heavy: bool = False


@dataclass
class Seen:
    """What came of a trial. All but the outcomes and the time is the receiver's; `sums_ok`: bodies came unharmed."""

    trial: Trial
    outcome: Outcome | None
    warm: Outcome | None
    wall_s: float
    arrived: int = 0
    body_bytes: int = 0
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    sums_ok: bool = True
    port: int = 0


def trial_of(variant: Variant, *, timeout_ms: int = 0) -> Trial:
    case = variant.case
    server = case.server if variant.scheme == "tls" else case.over_plain_server
    return Trial(
        str(variant),
        case.script,
        variant.scheme,
        variant.on,
        BODIES[variant.size],
        timeout_ms or case.deadline_ms,
        case.connect_ms,
        case.to,
        case.host,
        server,
        identities().clients[case.client],
        case.headers,
        case.receive_buffer,
        case.silent,
        heavy=variant.size == "20 MB",
    )


class _Flight:
    """A trial on its way."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.scope = contextlib.ExitStack()
        self.conversation: Conversation | None = None
        self.warm: Outcome | None = None
        self.begun = 0.0
        self.seen: Seen | None = None
        if trial.to == "receiver":
            context = identities().servers[trial.server] if trial.server else None
            self.conversation = Conversation(
                trial.script, context=context, warm=trial.on == "reused", receive_buffer=trial.receive_buffer
            )
            if trial.silent:
                self.scope.enter_context(_full_backlog(trial.silent, self.conversation.port))
        self.url = self._url()

    def _url(self) -> str:
        trial = self.trial
        if "://" in trial.to:
            return trial.to
        if self.conversation is not None:
            port = self.conversation.port
        elif trial.to == "closed port":
            port = self.scope.enter_context(_closed_port())
        else:
            port = self.scope.enter_context(_full_backlog())
        host = trial.host or (HOST if trial.scheme == "tls" else "127.0.0.1")
        return f"{'https' if trial.scheme == 'tls' else 'http'}://{host}:{port}/hook?a=b%20c"

    def request(self, key: int, *, warm: bool = False) -> Request:
        trial = self.trial
        self.begun = time.monotonic()
        return Request(
            key,
            self.url,
            HEADERS + (() if warm else trial.headers),
            b"warm" if warm else trial.body,
            LONG_MS if warm else trial.timeout_ms,
            5_000 if warm else trial.connect_ms,
            trial.tls,
        )

    def ended(self, outcome: Outcome | None) -> None:
        self.seen = Seen(self.trial, outcome, self.warm, time.monotonic() - self.begun)
        if self.conversation is not None:
            self.conversation.stop()

    def overdue(self) -> bool:
        return time.monotonic() > self.begun + self.trial.timeout_ms / 1000 + GRACE_S

    def result(self) -> Seen:
        assert self.seen is not None
        with self.scope:
            conversation = self.conversation
            if conversation is not None:
                conversation.join()
                seen = self.seen
                seen.arrived = conversation.arrived
                seen.body_bytes = conversation.body_bytes - (4 if self.warm is not None else 0)
                seen.heads = conversation.heads
                seen.statuses = conversation.statuses
                seen.connections = len(conversation.wires)
                seen.port = conversation.port
                known = {zlib.crc32(self.trial.body), zlib.crc32(b"warm")}
                seen.sums_ok = set(conversation.sums) <= known
        return self.seen


def run(transport: Transport, trials: Iterable[Trial], *, at_once: int = AT_ONCE) -> list[Seen]:
    """Run them all, `at_once` at a time, and give what was seen in the order of the trials.

    A trial whose request is not reported within its deadline and `GRACE_S` has no outcome.
    """
    queue = deque(enumerate(trials))
    live: dict[int, _Flight] = {}
    opening: dict[int, _Flight] = {}  # their first request was answered; the receiver is not yet where it should be
    over: dict[int, _Flight] = {}
    while queue or live:
        while queue and len(live) < at_once:
            key, trial = queue.popleft()
            flight = live[key] = _Flight(trial)
            transport.submit(flight.request(key, warm=trial.on == "reused"))
        for outcome in transport.poll(0.005 if opening else 0.05):
            flight = live[outcome.key]
            if flight.trial.on == "reused" and flight.warm is None:
                flight.warm = outcome
                opening[outcome.key] = flight
                assert flight.conversation is not None
                flight.conversation.warmed.set()
            else:
                flight.ended(outcome)
                over[outcome.key] = live.pop(outcome.key)
        for key, flight in list(opening.items()):
            assert flight.conversation is not None
            if flight.conversation.ready.is_set():
                del opening[key]
                transport.submit(flight.request(key))
        for key, flight in list(live.items()):
            if flight.overdue():
                flight.ended(None)
                opening.pop(key, None)
                over[key] = live.pop(key)
    return [over[key].result() for key in sorted(over)]


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    """A port on which nobody listens and that nobody else is given meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        yield port


@contextlib.contextmanager
def _full_backlog(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port whose listener takes no more connections: the kernel drops what knocks."""
    with contextlib.ExitStack() as scope:
        listener = scope.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            knocking = scope.enter_context(socket.socket())
            knocking.setblocking(False)
            knocking.connect_ex(address)
        yield address[1]
