"""One libcurl handle: its fixed options, its callbacks, and the evidence that they gather.

Rules, each with a test:
- The body goes through READFUNCTION without a seek function and never through POSTFIELDS. With POSTFIELDS libcurl
  silently sends the whole request again when a reused connection dies: up to six copies behind one reported 200.
- PREREQFUNCTION, called before each send, refuses the second send of a transfer, judges the peer's address again (the
  connection cache would let one policy ride on a connection that another one opened) and looks whether a reused
  connection was made with the same Tls, has died, or holds a stale answer, which libcurl itself skips within a second
  of its last look.
- Nothing is sent past the deadline: PREREQFUNCTION and READFUNCTION look at the clock. libcurl is not told of it.
- A handle with a Tls of its own serves one request and is closed: no key can stay on it for another endpoint.
- An empty body never reaches READFUNCTION, so it always gets a connection of its own, which is never sent again on.
- Callbacks catch everything and return the refusing value: an exception would come out of another transfer's turn.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Any

import pycurl

from deliveries.egress import EgressPolicy
from deliveries.transport import curl_tls
from deliveries.transport.base import (
    BODY_KEPT,
    BODY_READ,
    HEAD_LIMIT,
    PUBLIC,
    Evidence,
    Request,
    Target,
    Tls,
    connect_share,
    refusal,
)
from deliveries.transport.curl_connections import Connections

BUFFER = 16 * 1024  # bytes; libcurl's defaults cost 55 kB per request in flight, this costs 25 kB
MOST_LINES = 1000  # of a response head; libcurl, at 5,000, would hold 800 kB for a receiver that sends no end of them
IDLE_S = 30  # an idle connection older than this is not used again
_DISALLOW_USERNAME_IN_URL = 278  # the option has no name in pycurl
_OVERDUE = "Its time was over before it was sent."
_LONG_HEAD = "The response head was longer than 64 KiB."
_MANY_HEADERS = "The response had more than 1,000 header lines."
_HALF_SENT = "Its time was over before the receiver had taken all of it."


class Easy(pycurl.Curl):
    """libcurl's object, which the multi gives back, with the way to ours."""

    handle: Handle


class Handle:
    """A pooled handle. `begin` prepares it for one transfer; afterwards the attributes tell what happened."""

    __slots__ = (
        "_connect_ms",
        "_connections",
        "_fresh",
        "_on_open",
        "_pin",
        "_room",
        "_sent",
        "_socket",
        "_url",
        "addresses",
        "body",
        "curl",
        "deadline",
        "fd",
        "header_lines",
        "lines",
        "peer",
        "policy",
        "read",
        "refused",
        "request",
        "resubmitted",
        "reused",
        "sends",
        "started",
        "stopped",
        "target",
        "tls",
    )  # fmt: skip

    addresses: tuple[str, ...]
    deadline: float
    header_lines: list[str]
    policy: EgressPolicy
    request: Request
    resubmitted: bool
    started: float
    stopped: bool
    target: Target

    def __init__(
        self, connections: Connections, on_open: Callable[[int], None], ca_file: str, tls: Tls = PUBLIC
    ) -> None:
        self.tls = tls
        self._connections = connections
        self._on_open = on_open
        self._url = ""
        self._pin = ""
        self._fresh = False
        self._connect_ms = 0
        self.lines: list[bytes] = []
        self.curl = curl = Easy()
        curl.handle = self
        for option, value in (
            (pycurl.POST, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),  # one lost connection is one unknown outcome
            (pycurl.NOSIGNAL, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PATH_AS_IS, 1),  # `/a/../b` goes out as it was saved
            (pycurl.PROXY, ""),  # proxies of the environment would resolve names and connect past the guard
            (pycurl.NETRC, 0),
            (_DISALLOW_USERNAME_IN_URL, 1),
            (pycurl.USERAGENT, "Relay"),
            (pycurl.CAINFO, ca_file),
            (pycurl.CAPATH, None),  # libcurl may have been built with a folder that is trusted besides
            (pycurl.MAXAGE_CONN, IDLE_S),
            (pycurl.BUFFERSIZE, BUFFER),
            (pycurl.UPLOAD_BUFFERSIZE, BUFFER),
            (pycurl.READFUNCTION, self._on_read),
            (pycurl.WRITEFUNCTION, self._on_write),
            (pycurl.HEADERFUNCTION, self._on_header),
            (pycurl.OPENSOCKETFUNCTION, self._on_open_socket),
            (pycurl.PREREQFUNCTION, self._on_prereq),
        ):
            curl.setopt(option, value)
        if tls is not PUBLIC:
            curl_tls.apply(tls, curl)

    def take(
        self,
        request: Request,
        target: Target,
        header_lines: list[str],
        *,
        addresses: tuple[str, ...],
        policy: EgressPolicy,
        started: float,
    ) -> None:
        """Take a request on; `addresses` are vetted, in the order to try them. `started` is monotonic seconds."""
        self.addresses = addresses
        self.request = request
        self.target = target
        self.header_lines = header_lines
        self.policy = policy
        self.started = started
        self.deadline = started + request.timeout_ms / 1000.0
        self.resubmitted = False
        self.stopped = False

    def begin(self, *, fresh: bool) -> None:
        """Make the handle ready to send the request to the first of its addresses."""
        self._sent = 0
        self._socket = -1
        self.fd = -1  # of the connection that it was sent on
        self.sends = 0
        self.reused = False
        self.refused = ""
        self.peer: tuple[str, int] | None = None
        self.body = b""
        self.read = 0
        self.lines.clear()
        self._room = HEAD_LIMIT
        curl, request, address = self.curl, self.request, self.addresses[0]
        if request.url != self._url:
            curl.setopt(pycurl.URL, request.url)
            self._url = request.url
        # The vetted address is pinned: the name stays in Host, SNI and the certificate check, nothing is looked up
        # again, and the connection cache is keyed by the address.
        pin = f"::[{address}]:{self.target.port}" if ":" in address else f"::{address}:{self.target.port}"
        if pin != self._pin:
            curl.setopt(pycurl.CONNECT_TO, [pin])
            self._pin = pin
        fresh = fresh or not request.body
        if fresh != self._fresh:
            curl.setopt(pycurl.FRESH_CONNECT, int(fresh))
            self._fresh = fresh
        connect_ms = request.connect_timeout_ms
        if len(self.addresses) > 1:
            left_s = self.deadline - time.monotonic()
            connect_ms = max(int(connect_share(connect_ms / 1000, left_s, len(self.addresses)) * 1000), 1)
        if connect_ms != self._connect_ms:
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, connect_ms)
            self._connect_ms = connect_ms
        curl.setopt(pycurl.POSTFIELDSIZE_LARGE, len(request.body))
        curl.setopt(pycurl.HTTPHEADER, self.header_lines)

    def shut(self) -> None:
        """Nothing is sent from now on, whatever the clock says; what has come can still be read."""
        self.deadline = 0.0
        if self.fd >= 0 and self.curl.getinfo(pycurl.SIZE_UPLOAD_T) < len(self.request.body):
            # libcurl would go on with what it has buffered. It reads before it finds that it cannot write.
            self.refused = _HALF_SENT
            try:
                connection = socket.socket(fileno=self.fd)
                try:
                    connection.shutdown(socket.SHUT_WR)
                finally:
                    connection.detach()  # libcurl closes it
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.EBADF):  # the receiver has reset it; it is closed already
                    raise

    def close(self) -> None:
        """Forget everything, keys among it. The connection stays in the cache of the multi."""
        self.curl.close()
        self.tls = PUBLIC

    def evidence(self, code: int, *, head_complete: bool, aborted: bool) -> Evidence:
        """What is known now."""
        getinfo, body = self.curl.getinfo, len(self.request.body)
        offered: int = getinfo(pycurl.REQUEST_SIZE)
        written: int = getinfo(pycurl.SIZE_UPLOAD_T)
        return Evidence(
            offered,
            body,
            written,
            self.sends,
            offered > 0 and written >= body,
            head_complete,
            None if self.peer is None else f"{self.peer[0]} {self.peer[1]}",
            self.reused,
            self.resubmitted,
            aborted,
            int((time.monotonic() - self.started) * 1000),
            code,
            getinfo(pycurl.OS_ERRNO) if code else 0,
        )

    def _on_read(self, size: int) -> Any:
        try:
            if self.deadline <= time.monotonic():
                self.refused = _HALF_SENT if self._sent else _OVERDUE
                return pycurl.READFUNC_ABORT
            body, at = self.request.body, self._sent
            self._sent = at + size
            return body if size >= len(body) and not at else body[at : at + size]
        except Exception:  # noqa: BLE001 - it would come out of another transfer's turn
            self.refused = "The body could not be read."
            return pycurl.READFUNC_ABORT

    def _on_header(self, line: bytes) -> int | None:
        self.lines.append(line)
        self._room -= len(line)
        if self._room >= 0 and len(self.lines) <= MOST_LINES:
            return None
        self.refused = _LONG_HEAD if self._room < 0 else _MANY_HEADERS
        return 0

    def _on_write(self, data: bytes) -> int:
        try:
            if len(self.body) < BODY_KEPT:
                self.body += data[: BODY_KEPT - len(self.body)]
            self.read += len(data)
            return len(data) if self.read <= BODY_READ else 0
        except Exception:  # noqa: BLE001 - it would come out of another transfer's turn
            return 0  # ends the transfer; what the receiver answered stands

    def _on_open_socket(self, purpose: int, address: Any) -> int:
        try:
            family, kind, protocol, peer = address
            host = peer[0].decode() if isinstance(peer[0], bytes) else peer[0]
            if purpose != pycurl.SOCKTYPE_IPCXN or family not in (socket.AF_INET, socket.AF_INET6):
                self.refused = "Only connections by IP are made."
                return pycurl.SOCKET_BAD
            if len(peer) > 3 and peer[3]:
                host = f"{host}%{peer[3]}"
            if not self.policy.allows(host, peer[1], plain=self.target.plain):
                self.refused = refusal(host, peer[1])
                return pycurl.SOCKET_BAD
            # The number is handed over, not the object: libcurl closes it.
            fd = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol).detach()
            self._socket = fd
            self._connections.opened(fd)
            self._on_open(fd)
            return fd
        except Exception as error:  # noqa: BLE001 - it would come out of another transfer's turn
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            self.refused = f"No socket could be made: {reason}."
            return pycurl.SOCKET_BAD

    def _on_prereq(self, peer: str, _local: str, peer_port: int, local_port: int) -> int:
        try:
            self.sends += 1
            if self.sends > 1:
                return pycurl.PREREQFUNC_ABORT
            if self.deadline <= time.monotonic():
                self.refused = _OVERDUE
                return pycurl.PREREQFUNC_ABORT
            self.peer = (peer, peer_port)
            self.reused = self._socket < 0
            if not self.policy.allows(peer, peer_port, plain=self.target.plain):
                self.refused = refusal(peer, peer_port)
                return pycurl.PREREQFUNC_ABORT
            ends = (local_port, peer, peer_port)
            if not self.reused:
                self.fd = self._socket
                self._connections.connected(self.fd, ends, self.tls)
                return pycurl.PREREQFUNC_OK
            self.fd = self._connections.usable(ends, self.tls)
            if self.fd >= 0:
                return pycurl.PREREQFUNC_OK
            return pycurl.PREREQFUNC_ABORT  # nothing was written: the transport sends it on a fresh connection
        except Exception as error:  # noqa: BLE001 - it would come out of another transfer's turn
            self.refused = f"The connection could not be checked before sending: {type(error).__name__}."
            return pycurl.PREREQFUNC_ABORT
