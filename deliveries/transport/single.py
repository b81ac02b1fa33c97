"""One bounded request through `requests`: for calls that are few, and made by a thread that may wait for them.

Every rule of a delivery holds: the address is vetted and pinned, redirects are not followed, one deadline spans the
name look-up and the last byte of the body, and what is known afterwards is told by evidence and not by an exception:
`requests` raises the same classes before and after a receiver has processed something, and leaks others besides.
"""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import time
from typing import Any, NamedTuple

import certifi
import requests
from requests import Response

from deliveries.egress import EgressPolicy
from deliveries.transport.base import (
    BODY_KEPT,
    BODY_READ,
    Evidence,
    Headers,
    Refused,
    Target,
    header_lines,
    target_of,
    verdict_of,
)
from deliveries.transport.resolve import Lookup, Resolver, look_up
from deliveries.transport.single_wire import OneRequest, Trace, refusal

_LONGEST_REASON = 200
_PIECE = 16 * 1024


class Answer(NamedTuple):
    """What became of a request. `status` is that of a complete head, whatever the verdict.

    `body` is its first 16 KiB as they came, never inflated; `body_complete` when that is all of it. `error` is empty
    when everything came, otherwise one plain sentence.
    """

    verdict: str
    status: int | None
    headers: Headers
    body: bytes
    body_complete: bool
    error: str
    evidence: Evidence


def fetch(
    method: str,
    url: str,
    headers: Headers,
    *,
    timeout_ms: int,
    policy: EgressPolicy,
    body: bytes = b"",
    connect_timeout_ms: int = 5000,
    ca_file: str | None = None,
    look_up: Lookup = look_up,
) -> Answer:
    """Make one request, once, and say what came of it; it never raises for what the other side does.

    Guarantee: it returns within `timeout_ms` (and a moment), name look-up included; at most one request is written.
    Limit: a name look-up that was given up ends by itself, in a thread of its own.
    """
    started = time.monotonic()
    deadline = started + timeout_ms / 1000
    trace: Trace | None = None
    try:
        target = target_of(url)
        prepared = _prepare(method, url, headers, body)
        trace = Trace(target, policy, deadline, connect_timeout_ms / 1000)
        trace.addresses = _addresses(target, policy, look_up, min(deadline, started + trace.connect_s))
    except Refused as refused:
        evidence = Evidence(body_bytes=len(body), elapsed_ms=_since(started))
        return Answer(verdict_of(evidence, None), None, (), b"", False, str(refused), evidence)
    read = _Read()
    with OneRequest(trace, ca_file or certifi.where()) as session:
        try:
            response = session.send(prepared, stream=True, allow_redirects=False, proxies={}, timeout=timeout_ms / 1000)
        except Exception as error:  # noqa: BLE001 - requests leaks errors of every library under it; the trace decides
            trace.failure = trace.failure or error
        else:
            with contextlib.closing(response):
                if not 300 <= response.status_code < 400:
                    read = _read_body(response)
    return _answer(trace, len(body), read, started)


class _Read(NamedTuple):
    body: bytes = b""
    complete: bool = False
    trouble: str = ""


def _prepare(method: str, url: str, headers: Headers, body: bytes) -> requests.PreparedRequest:
    header_lines(headers)
    named = {name.lower(): value for name, value in headers}
    if len(named) != len(headers):
        raise Refused("A header is named twice.")
    ours = {"accept-encoding": "identity", "connection": "close"}
    prepared = requests.Request(
        method, url, {"accept": "*/*", "user-agent": "Relay", **named, **ours}, data=body
    ).prepare()
    prepared.url = url  # as it was given: `requests` would quote it anew
    return prepared


# Names and addresses


def _addresses(target: Target, policy: EgressPolicy, look_up: Lookup, until: float) -> tuple[str, ...]:
    """Vetted addresses to call, in the order to try them; all of a name's or none."""
    if target.numeric:
        found: tuple[str, ...] = (target.host,)
    elif target.host == "localhost":  # never looked up (RFC 6761, 6.3)
        both = ("127.0.0.1", "::1")
        found = tuple(one for one in both if policy.allows(one, target.port, plain=target.plain)) or both[:1]
    else:
        found = _resolve(target.host, look_up, until)
    for address in found:
        if not policy.allows(address, target.port, plain=target.plain):
            raise Refused(refusal(address, target.port))
    return found


def _resolve(host: str, look_up: Lookup, until: float) -> tuple[str, ...]:
    resolver = Resolver(look_up)
    try:
        resolver.ask(host)
        waiting = select.poll()
        waiting.register(resolver.fileno(), select.POLLIN)
        if not waiting.poll(max(until - time.monotonic(), 0.0) * 1000):
            raise Refused("The host name was not resolved in time.")
        ((_, answer),) = resolver.collect()
    finally:
        resolver.close()
    if not answer.addresses:
        raise Refused(answer.error)
    return answer.addresses


# The answer


def _read_body(response: Response) -> _Read:
    """The body up to the cap. Whatever happens to it, what the receiver answered stands."""
    kept = bytearray()
    read = 0
    try:
        while read <= BODY_READ:
            piece = response.raw.read1(_PIECE, decode_content=False)
            if not piece:
                return _Read(bytes(kept), read <= BODY_KEPT, "")
            read += len(piece)
            kept += piece[: max(BODY_KEPT - len(kept), 0)]
    except Exception as error:  # noqa: BLE001 - as above
        late = any(isinstance(one, TimeoutError) for one in _chain(error))
        return _Read(bytes(kept), False, "late" if late else "The response body was cut short.")
    return _Read(bytes(kept), False, "The response body was longer than 256 KiB; the rest was not read.")


def _answer(trace: Trace, body_bytes: int, read: _Read, started: float) -> Answer:
    failure, head = trace.failure, trace.head
    evidence = Evidence(
        bytes_offered=trace.offered,
        body_bytes=body_bytes,
        body_bytes_written=trace.body_written,
        sends=trace.sends,
        request_complete=trace.complete,
        head_complete=head.status is not None,
        peer=trace.peer,
        elapsed_ms=_since(started),
        os_errno=failure.errno or 0 if isinstance(failure, OSError) else 0,
    )
    error = read.trouble if head.status is not None and trace.complete else _sentence(trace, evidence)
    if error == "late":
        error = f"The response body was not complete after {evidence.elapsed_ms} ms."
    return Answer(
        verdict_of(evidence, head.status), head.status, head.headers, read.body, read.complete, error, evidence
    )


def _sentence(trace: Trace, evidence: Evidence) -> str:
    """What went wrong. The error's class chooses the words and never the verdict."""
    failure, head = trace.failure, trace.head
    if isinstance(failure, Refused):
        return str(failure)
    if head.status is not None:
        return f"The receiver answered {head.status} before the request was complete."
    if head.trouble:
        return head.trouble
    chain = _chain(failure)
    if any(isinstance(one, TimeoutError) for one in chain):
        return f"No {'complete answer' if trace.sends else 'connection'} after {evidence.elapsed_ms} ms."
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"The receiver's certificate was not accepted: {_plain(one.verify_message)}."
    if trace.peer and not trace.sends:
        return f"The TLS handshake failed: {_reason(chain)}."
    if not trace.sends:
        return f"The connection could not be made: {_reason(chain)}."
    return f"The connection broke: {_reason(chain)}."


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and what it was made from, innermost last."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        inner = [one for one in error.args if isinstance(one, BaseException)]
        error = error.__cause__ or error.__context__ or (inner[0] if inner else None)
    return chain


def _reason(chain: list[BaseException]) -> str:
    for one in chain:
        if isinstance(one, ssl.SSLError):
            return _plain(one.reason or "")
        if isinstance(one, OSError) and one.errno:
            return os.strerror(one.errno)
    return type(chain[-1]).__name__ if chain else "no reason given"


def _plain(message: Any) -> str:
    """A library's text, which may quote the receiver: printable and bounded."""
    text = "".join(character if character.isprintable() else " " for character in str(message)).strip().rstrip(".")
    return text[:_LONGEST_REASON] or "no reason given"


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
