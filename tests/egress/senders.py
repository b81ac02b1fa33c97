"""Everything of ours that makes a connection to a receiver, behind one function."""

from __future__ import annotations

import socket
from typing import NamedTuple

from deliveries.egress import EgressPolicy
from deliveries.transport import single
from deliveries.transport.base import Transport
from deliveries.transport.curl import CurlTransport
from deliveries.transport.requests import RequestsTransport
from deliveries.transport.resolve import Lookup
from tests.transports import BODY, HEADERS, collect, request

KINDS = ("curl", "requests", "single")
"""Both transports, and the single request for what is no delivery: questions to receivers, and tokens."""


class Sent(NamedTuple):
    verdict: str
    error: str
    bytes_offered: int
    reused: bool


class Sender:
    """One transport under one policy, which may be replaced between requests."""

    def __init__(
        self, kind: str, policy: EgressPolicy, *, look_up: Lookup | None = None, ca_file: str | None = None
    ) -> None:
        self.policy = policy
        self._look_up = look_up or no_address
        self._ca_file = ca_file
        self._transport: Transport | None = None
        if kind == "curl":
            self._transport = CurlTransport(policy, ca_file=ca_file, look_up=self._look_up)
        elif kind == "requests":
            self._transport = RequestsTransport(policy, ca_file=ca_file, look_up=self._look_up)

    def send(self, url: str, *, timeout_ms: int = 5000) -> Sent:
        """POST to `url`, once."""
        if self._transport is None:
            answer = single.fetch(
                "POST", url, HEADERS, body=BODY, timeout_ms=timeout_ms, policy=self.policy, look_up=self._look_up,
                ca_file=self._ca_file,
            )  # fmt: skip
            return Sent(answer.verdict, answer.error, answer.evidence.bytes_offered, answer.evidence.reused)
        assert isinstance(self._transport, CurlTransport | RequestsTransport)
        self._transport.policy = self.policy
        self._transport.submit(request(1, url, timeout_ms=timeout_ms))
        (outcome,) = collect(self._transport, 1)
        return Sent(outcome.verdict, outcome.error, outcome.evidence.bytes_offered, outcome.evidence.reused)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def no_address(host: str) -> tuple[str, ...]:
    """A look-up of a name that there is not."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
