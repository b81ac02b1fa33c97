"""One bounded request through `requests`: for calls that are few, and made by a thread that may wait for them.

Every rule of a delivery holds: the address is vetted and pinned, redirects are not followed, one deadline spans the
name look-up and the last byte of the body, and what is known afterwards is told by evidence and not by an exception:
`requests` raises the same classes before and after a receiver has processed something, and leaks others besides.
"""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

import certifi
from requests import PreparedRequest, Response
from requests.hooks import default_hooks
from urllib3 import HTTPHeaderDict

from deliveries.egress import EgressPolicy
from deliveries.transport.base import (
    BODY_KEPT,
    BODY_READ,
    PUBLIC,
    Evidence,
    Headers,
    Refused,
    Target,
    Tls,
    check_tls,
    header_lines,
    refusal,
    target_of,
    verdict_of,
)
from deliveries.transport.lookups import Lookups, shared
from deliveries.transport.resolve import Lookup
from deliveries.transport.resolve import look_up as default_look_up
from deliveries.transport.single_errors import is_late, os_errno, sentence
from deliveries.transport.single_trace import Trace
from deliveries.transport.single_wire import Adapter

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
    tls: Tls = PUBLIC,
    look_up: Lookup = default_look_up,
) -> Answer:
    """Make one request, once, and say what came of it; it never raises for what the other side does.

    Guarantee: it returns within `timeout_ms` (and a moment), name look-up included; at most one request is written.
    Limit: a name look-up that was given up ends by itself, in a thread that all who wait for the name share.
    """
    started = time.monotonic()
    deadline = started + timeout_ms / 1000
    connect_s = connect_timeout_ms / 1000
    try:
        target = target_of(url)
        check_tls(tls)
        prepared = prepare(method, url, headers, body)
        addresses = _addresses(target, policy, look_up, min(deadline, started + connect_s))
    except Refused as refused:
        evidence = Evidence(body_bytes=len(body), elapsed_ms=_since(started))
        return Answer(verdict_of(evidence, None), None, (), b"", False, str(refused), evidence)
    trace = Trace(
        target,
        addresses,
        policy=policy,
        started=started,
        deadline=deadline,
        connect_s=connect_s,
        body_bytes=len(body),
        ca_file=ca_file or certifi.where(),
        tls=tls,
    )
    return exchange(trace, prepared)


def prepare(method: str, url: str, headers: Headers, body: bytes) -> PreparedRequest:
    """The request as it is to be written, with `url` and `headers` exactly as given; `Refused` when it may not be.

    Made by hand: `requests` would quote the URL anew, and cannot send two headers of one name.
    """
    header_lines(headers)
    fields = HTTPHeaderDict()
    named = {name.lower() for name, _ in headers}
    for name, value in (("Accept", "*/*"), ("User-Agent", "Relay")):
        if name.lower() not in named:
            fields.add(name, value)
    fields.add("Accept-Encoding", "identity")
    fields.add("Connection", "close")
    if body or method == "POST":
        fields.add("Content-Length", str(len(body)))
    for name, value in headers:
        if name.lower() != "accept-encoding":
            fields.add(name, value)
    prepared = PreparedRequest()
    prepared.method = method
    prepared.url = url
    prepared.headers = fields  # type: ignore[assignment]  # all that is used of it is a mapping's
    prepared.body = body or None
    prepared.hooks = default_hooks()
    return prepared


def exchange(trace: Trace, prepared: PreparedRequest) -> Answer:
    """Send the request and read the answer, in this thread. What goes wrong is in the answer."""
    read = _Read()
    try:
        with (
            contextlib.closing(Adapter(trace, prepared)) as adapter,
            contextlib.closing(adapter.send(prepared, stream=True, timeout=trace.deadline - trace.started)) as response,
        ):
            if not 300 <= response.status_code < 400:
                read = _read_body(response, trace.started)
    except Exception as error:  # noqa: BLE001 - requests leaks errors of every library under it; the trace decides
        trace.failure = trace.failure or error
    answer = told(trace, read)
    trace.over()
    return answer


class _Read(NamedTuple):
    body: bytes = b""
    complete: bool = False
    trouble: str = ""
    ended: bool = True  # by the other side, or by the limit


def told(trace: Trace, read: _Read = _Read()) -> Answer:  # noqa: B008 - it cannot be changed
    """What is known of the request now: after it, or after a stop. Any thread."""
    head = trace.head
    with trace.lock:
        evidence = Evidence(
            bytes_offered=trace.offered,
            body_bytes=trace.body_bytes,
            body_bytes_written=trace.body_written,
            sends=trace.sends,
            request_complete=trace.complete,
            head_complete=head.status is not None,
            peer=trace.peer,
            elapsed_ms=_since(trace.started),
            os_errno=os_errno(trace.failure),
        )
    answered = head.status is not None and evidence.request_complete
    if trace.stopped and not (answered and read.ended):
        evidence = evidence._replace(aborted=True)
    error = read.trouble if answered and not evidence.aborted else sentence(trace, evidence)
    return Answer(
        verdict_of(evidence, head.status), head.status, head.headers, read.body, read.complete, error, evidence
    )


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
    lookups = shared() if look_up is default_look_up else Lookups(look_up)
    answer = lookups.answer(host, until - time.monotonic())
    if answer is None:
        raise Refused("The host name was not resolved in time.")
    if not answer.addresses:
        raise Refused(answer.error)
    return answer.addresses


# The answer


def _read_body(response: Response, started: float) -> _Read:
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
        if is_late(error):
            trouble = f"The response body was not complete after {_since(started)} ms."
            return _Read(bytes(kept), False, trouble, ended=False)
        return _Read(bytes(kept), False, "The response body was cut short.")
    return _Read(bytes(kept), False, "The response body was longer than 256 KiB; the rest was not read.")


def _since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
