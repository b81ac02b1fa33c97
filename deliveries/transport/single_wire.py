"""What `single` puts under `requests`: a connection to a vetted address, over the sockets of `single_sockets`.

Rules, each with a test:
- The name was resolved and vetted before; a connection is made to one of those numeric addresses and nothing is looked
  up again. Host, SNI and certificate checks stay with the name.
- The head is read and judged by `single_head`. http.client is only told how the body is framed.
- No session, no proxy, no retry: one connection is made, and one request is written to it, once.
"""

from __future__ import annotations

import http.client
import io
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse
from urllib3.util.retry import Retry

from deliveries.transport.base import Refused
from deliveries.transport.single_head import framed, read_final_head
from deliveries.transport.single_sockets import connected
from deliveries.transport.single_trace import Stopped, Trace

_TOGETHER = 64 * 1024  # bytes of body that are copied to leave with the head: one packet less, and one TLS record


class BrokenHead(OSError):
    """No complete head of a final response came; the text says why."""


class _Response(http.client.HTTPResponse):
    """Reads the head by our rules; http.client gets a short one that says how the body is framed."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._trace: Trace = sock.trace

    def begin(self) -> None:
        stream: Any = self.fp
        head = self._trace.head = read_final_head(stream)
        if head.status is None:
            raise BrokenHead(head.trouble)
        self.fp = io.BufferedReader(io.BytesIO(framed(head)))
        super().begin()
        self.fp = stream


class _Plain(HTTPConnection):
    """Makes its socket and writes to it by our rules."""

    response_class = _Response

    def __init__(self, *args: Any, trace: Trace, path: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trace = trace
        self.path = path
        self._head = b""  # until it is written together with what follows

    def connect(self) -> None:
        try:
            self.sock = connected(self.trace)
        except Exception as failure:
            self.trace.failure = failure
            raise

    def send(self, data: Any) -> None:
        """Write all of `data`. The first call of a request is its head, which waits for the body to leave with it."""
        if self.sock is None:
            self.connect()
        if not self.trace.head_bytes:
            self.trace.head_bytes = len(data)
            self._head = bytes(data)
            return
        head, self._head = self._head, b""
        if len(data) <= _TOGETHER:
            self._write(head + data)
        else:
            self._write(head)
            self._write(data)

    def _write(self, data: bytes) -> None:
        sock: Any = self.sock
        trace = self.trace
        trace.sends = 1
        rest = memoryview(data)
        try:
            while rest:
                written = sock.write_some(rest)
                if written is None:
                    raise BrokenPipeError
                rest = rest[written:]
        except (TimeoutError, Stopped) as failure:
            trace.failure = failure
            raise BrokenPipeError from failure  # urllib3 then reads what the receiver may have answered
        except Exception as failure:
            trace.failure = failure
            raise

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        if self.trace.head_bytes:
            raise Refused("The request would have been sent a second time; it was stopped.")
        super().request(method, self.path, *args, **kwargs)  # urllib3 has quoted `url` anew
        if self._head:
            self._write(self._head)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # urllib3's own differs from http.client's
        try:
            return super().getresponse()
        except Exception as failure:
            # An error while writing, which urllib3 passes over to read an early answer, says more than this one.
            self.trace.failure = self.trace.failure or failure
            raise


class _Tls(_Plain, HTTPSConnection):
    """The same, with TLS between."""

    def connect(self) -> None:
        super().connect()
        self.is_verified = True


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _Tls


class Adapter(HTTPAdapter):
    """The part of `requests` that sends, for one request: a pool of its own with one connection, and never a proxy.

    There is no session around it, and so no redirect, no cookie and nothing of the environment.
    """

    def __init__(self, trace: Trace, request: PreparedRequest) -> None:
        super().__init__(max_retries=Retry(False))
        target = trace.target
        kind = _PlainPool if target.plain else _TlsPool
        self._path = _path(request.url or "")
        self._pool = kind(target.host, target.port, maxsize=1, trace=trace, path=self._path)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """There is one pool, and nobody manages it."""

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> HTTPConnectionPool:
        return self._pool

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """The certificates to trust are in the connection's own context."""

    def request_url(self, request: PreparedRequest, proxies: Any) -> str:
        return self._path

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        """The bare response: no cookies, and no history."""
        response = Response()
        response.status_code = resp.status
        response.raw = resp
        return response

    def close(self) -> None:
        self._pool.close()


def _path(url: str) -> str:
    """Path and query of a URL, as they are."""
    rest = url.partition("://")[2]
    for at, character in enumerate(rest):
        if character in "/?":
            return rest[at:] if character == "/" else f"/{rest[at:]}"
    return "/"
