"""From a request's host to vetted addresses, and the requests that wait for a name to be looked up."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from deliveries.egress import EgressPolicy
from deliveries.transport.base import Refused, Request, Target, refusal
from deliveries.transport.resolve import Answer, Lookup, Resolver


class Waiting:
    """A request whose host name is being looked up, since `started` (monotonic seconds)."""

    __slots__ = ("header_lines", "request", "started", "target")

    def __init__(self, request: Request, target: Target, header_lines: list[str], started: float) -> None:
        self.request = request
        self.target = target
        self.header_lines = header_lines
        self.started = started


class Names:
    """Addresses to call, and in `waiting`, a dict by key that the caller keeps, those who wait for them."""

    def __init__(self, look_up: Lookup, waiting: dict[int, Waiting]) -> None:
        self.resolver = Resolver(look_up)
        self._waiting = waiting
        self._by_host: dict[str, dict[int, Waiting]] = {}
        self._patience: list[tuple[float, int, Waiting]] = []  # a heap: when to give a look-up up

    def addresses(self, target: Target, policy: EgressPolicy) -> tuple[str, ...]:
        """Vetted addresses, in the order to try them; empty when the name must be looked up first. `Refused`."""
        if target.numeric:
            return _vetted(target, (target.host,), policy)
        if target.host == "localhost":  # never looked up (RFC 6761, 6.3)
            both = tuple(
                address for address in ("127.0.0.1", "::1") if policy.allows(address, target.port, plain=target.plain)
            )
            return both or _vetted(target, ("127.0.0.1",), policy)
        answer = self.resolver.known(target.host)
        return () if answer is None else _answered(target, answer, policy)

    def wait(self, waiting: Waiting) -> None:
        """Look the name up; `answered` or `given_up` gives the request back, unless it was taken out."""
        request = waiting.request
        self._waiting[request.key] = waiting
        self._by_host.setdefault(waiting.target.host, {})[request.key] = waiting
        bound = min(request.connect_timeout_ms, request.timeout_ms) / 1000.0
        heapq.heappush(self._patience, (waiting.started + bound, request.key, waiting))
        self.resolver.ask(waiting.target.host)

    def answered(self, policy: EgressPolicy) -> Iterable[tuple[Waiting, tuple[str, ...] | Refused]]:
        """Those whose name was looked up since the last call, with their vetted addresses or why there are none."""
        for host, answer in self.resolver.collect():
            for waiting in self._by_host.pop(host, {}).values():
                if self._waiting.get(waiting.request.key) is not waiting:
                    continue  # it was stopped, or waited long enough; its key may wait for another name by now
                del self._waiting[waiting.request.key]
                try:
                    yield waiting, _answered(waiting.target, answer, policy)
                except Refused as refused:
                    yield waiting, refused

    def next(self) -> float:
        """When somebody has waited long enough, in monotonic seconds; infinity when nobody waits."""
        return self._patience[0][0] if self._patience else float("inf")

    def given_up(self, now: float) -> list[Waiting]:
        """Those that have waited long enough; they wait no longer."""
        ended = []
        while self._patience and self._patience[0][0] <= now:
            _, key, waiting = heapq.heappop(self._patience)
            same_host = self._by_host.get(waiting.target.host, {})
            if same_host.get(key) is waiting:
                del same_host[key]  # its look-up may hang for long, and would keep its body
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
                ended.append(waiting)
        return ended


def _answered(target: Target, answer: Answer, policy: EgressPolicy) -> tuple[str, ...]:
    if not answer.addresses:
        raise Refused(answer.error)
    return _vetted(target, answer.addresses, policy)


def _vetted(target: Target, addresses: tuple[str, ...], policy: EgressPolicy) -> tuple[str, ...]:
    """All of them or none: one bad record refuses the name, whichever address would have been tried first."""
    for address in addresses:
        if not policy.allows(address, target.port, plain=target.plain):
            raise Refused(refusal(address, target.port))
    return addresses
