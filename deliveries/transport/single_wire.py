"""What `single` puts under `requests`: a connection to a vetted address, which keeps the deadline and leaves evidence.

Rules, each with a test:
- The name was resolved and vetted before; a connection is made to one of those numeric addresses and nothing is looked
  up again. Host, SNI and certificate checks stay with the name. The connected peer is judged once more at the socket.
- Every wait at the socket is for what is left of one deadline: no timeout of urllib3 bounds wall time.
- The head is read and judged here. http.client takes `HTTP/1.1 200` and FIN for a success, 103 for a final status, and
  6 MB of header lines for a head. It is only told how the body is framed.
- No pool, no proxy, no retry: one connection is made, and one request is written to it, once.
"""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
import ssl
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO

from requests import PreparedRequest, Session
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse
from urllib3.util.retry import Retry

from deliveries.egress import EgressPolicy
from deliveries.transport.base import HEAD_LIMIT, Head, Headers, Refused, Target, read_head

_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")
_LENGTH = re.compile(r"\d{1,15}\Z", re.ASCII)


class BrokenHead(OSError):
    """No complete head of a final response came; the text says why."""


@dataclass(slots=True)
class Trace:
    """One request on its way: where it may go, until when (monotonic seconds), and what was seen of it. Bytes."""

    target: Target
    policy: EgressPolicy
    deadline: float
    connect_s: float
    addresses: tuple[str, ...] = ()
    sends: int = 0
    offered: int = 0
    body_written: int = 0
    complete: bool = False
    peer: str | None = None
    head: Head = field(default_factory=lambda: Head(None, (), ""))
    failure: Exception | None = None

    def left(self) -> float:
        """Seconds until the deadline; TimeoutError when there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the total deadline has passed")
        return left


class _Socket(socket.socket):
    trace: Trace

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(self.trace.left())
        return super().recv_into(*args, **kwargs)

    def write_some(self, data: memoryview) -> int:
        """Write what the kernel takes. BrokenPipeError when it takes nothing because the peer has answered already."""
        waiting = select.poll()
        waiting.register(self, select.POLLOUT | select.POLLIN)
        events = waiting.poll(self.trace.left() * 1000)
        if events and not events[0][1] & (select.POLLOUT | select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        self.settimeout(self.trace.left())
        written = self.send(data)
        self.trace.offered += written
        return written


class _TlsSocket(ssl.SSLSocket):
    trace: Trace

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(self.trace.left())
        return super().recv_into(*args, **kwargs)

    def write_some(self, data: memoryview) -> int:
        """Write one record. Its bytes count as offered from the moment that the library has them."""
        self.settimeout(self.trace.left())
        record = data[:16384]
        self.trace.offered += len(record)
        written = self.send(record)
        self.trace.offered -= len(record) - written
        return written


class _Response(http.client.HTTPResponse):
    """Reads the head by our rules; http.client gets a short one that says how the body is framed."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._trace: Trace = sock.trace

    def begin(self) -> None:
        stream: Any = self.fp
        head = self._trace.head = _read(stream)
        if head.status is None:
            raise BrokenHead(head.trouble)
        self.fp = io.BufferedReader(io.BytesIO(_framing(head)))
        super().begin()
        self.fp = stream


class _Plain(HTTPConnection):
    """Makes its socket and writes to it by our rules; `trace` is its subclass's, one for each request."""

    response_class = _Response
    trace: Trace

    def _new_conn(self) -> socket.socket:
        trace = self.trace
        failure: OSError | None = None
        for address in trace.addresses:
            sock = _Socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            sock.trace = trace
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(min(trace.connect_s, trace.left()))
                sock.connect((address, trace.target.port))
                host, port = sock.getpeername()[:2]
                if not trace.policy.allows(host, port, plain=trace.target.plain):
                    raise Refused(refusal(host, port))
                trace.peer = f"{host} {port}"
                sock.settimeout(trace.left())  # a TLS handshake is next
            except OSError as error:
                sock.close()
                failure = error
            except Refused:
                sock.close()
                raise
            else:
                return sock
        raise failure or OSError("there is no address to connect to")

    def connect(self) -> None:
        try:
            super().connect()
        except Exception as failure:
            self.trace.failure = failure
            raise
        made: Any = self.sock
        made.trace = self.trace

    def send(self, data: Any) -> None:
        """Write all of `data`. The first call of a request is its head, the ones after it are its body."""
        if self.sock is None:
            self.connect()
        sock: Any = self.sock
        trace = self.trace
        body = trace.sends > 0
        trace.sends = 1
        rest = memoryview(data)
        try:
            while rest:
                written = sock.write_some(rest)
                rest = rest[written:]
                trace.body_written += written if body else 0
        except Exception as failure:
            trace.failure = failure
            raise

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.trace.sends:
            raise Refused("The request would have been sent a second time; it was stopped.")
        super().request(*args, **kwargs)
        self.trace.complete = True

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # urllib3's own differs from http.client's
        try:
            return super().getresponse()
        except Exception as failure:
            # An error while writing, which urllib3 passes over to read an early answer, says more than this one.
            self.trace.failure = self.trace.failure or failure
            raise


class _Tls(_Plain, HTTPSConnection):
    """The same, with TLS between."""


class Adapter(HTTPAdapter):
    """Makes, for one request, a pool of its own with one connection; never looks for a proxy."""

    def __init__(self, trace: Trace, ca_file: str) -> None:
        super().__init__(max_retries=Retry(False))
        self._trace = trace
        self._ca_file = ca_file
        self._pools: list[HTTPConnectionPool] = []

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> HTTPConnectionPool:
        target = self._trace.target
        pool: HTTPConnectionPool
        if target.plain:
            pool = HTTPConnectionPool(target.host, target.port, maxsize=1)
            pool.ConnectionCls = _traced(_Plain, self._trace)
        else:
            pool = HTTPSConnectionPool(
                target.host, target.port, maxsize=1, cert_reqs="CERT_REQUIRED", ssl_context=_context(self._ca_file)
            )
            pool.ConnectionCls = _traced(_Tls, self._trace)
        self._pools.append(pool)
        return pool

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """The certificates to trust are in the pool's own context."""

    def close(self) -> None:
        super().close()
        for pool in self._pools:
            pool.close()


class OneRequest(Session):
    """A session for one request: nothing of the environment (proxies, .netrc, certificates) reaches it."""

    def __init__(self, trace: Trace, ca_file: str) -> None:
        super().__init__()
        self.trust_env = False
        self.adapters.clear()
        self.mount("http://" if trace.target.plain else "https://", Adapter(trace, ca_file))

    def get_redirect_target(self, resp: Any) -> None:
        """A 3xx is an answer, never a hop. `requests` would read its whole body to be ready for the next one.

        It is told no Location either: both, so that neither has to hold alone.
        """


def refusal(address: str, port: int) -> str:
    """The sentence for an address that the egress policy refuses."""
    return f"The address {address} port {port} may not be called."


def _traced(kind: type[Any], trace: Trace) -> type[Any]:
    return type(kind.__name__, (kind,), {"trace": trace})


@lru_cache(maxsize=4)
def _context(ca_file: str) -> ssl.SSLContext:
    """Trusts `ca_file` and nothing else. Made bare: the default one would log TLS secrets where SSLKEYLOGFILE says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(ca_file)
    context.sslsocket_class = _TlsSocket
    return context


def _read(stream: BinaryIO) -> Head:
    """The final head, informational ones before it passed over; read no further than it is of use."""
    lines: list[bytes] = []
    size, begins = 0, True
    while size <= HEAD_LIMIT:
        line = stream.readline(HEAD_LIMIT + 1 - size)
        if not line:
            break
        size += len(line)
        lines.append(line)
        if begins:
            if not line.startswith(b"HTTP/1."):
                break
            informational, begins = bool(_INFORMATIONAL.match(line)), False
        elif line in (b"\r\n", b"\n"):
            if not informational:
                break
            begins = True
        elif (b":" not in line and line[:1] not in b" \t") or b"\0" in line:
            return Head(None, (), "A header line of the response was malformed.")
    if not lines:
        return Head(None, (), "The receiver closed the connection without an answer.")
    return read_head(lines)


def _framing(head: Head) -> bytes:
    lines = [f"HTTP/1.1 {head.status} ", "Connection: close", *_framing_lines(head.headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _framing_lines(headers: Headers) -> list[str]:
    """The header lines that say where the body ends; none when they say nothing or disagree: then the connection's end
    is the body's."""
    said: dict[str, set[str]] = {"transfer-encoding": set(), "content-length": set()}
    for name, value in headers:
        if name.lower() in said:
            said[name.lower()].add(value.lower())
    encodings, lengths = said["transfer-encoding"], said["content-length"]
    if encodings:
        return ["Transfer-Encoding: chunked"] if encodings == {"chunked"} else []
    return [f"Content-Length: {lengths.pop()}"] if len(lengths) == 1 and all(map(_LENGTH.match, lengths)) else []
