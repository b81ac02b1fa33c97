"""One libcurl handle: its fixed options, its callbacks, and the evidence that they gather.

Rules, each with a test:
- The body goes through READFUNCTION without a seek function and never through POSTFIELDS. With POSTFIELDS libcurl
  silently sends the whole request again when a reused connection dies: up to six copies behind one reported 200.
- PREREQFUNCTION, called before each send, refuses the second send of a transfer, judges the peer's address again (the
  connection cache would let one policy ride on a connection that another one opened) and looks whether a reused
  connection has died or holds a stale answer, which libcurl itself skips within a second of its last look.
- An empty body never reaches READFUNCTION, so it always gets a connection of its own, which is never sent again on.
- Callbacks catch everything and return the refusing value: an exception would come out of another transfer's turn.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pycurl

from deliveries.egress import EgressPolicy
from deliveries.transport.base import BODY_KEPT, BODY_READ, Evidence, Request, Target

BUFFER = 16 * 1024  # bytes; libcurl's defaults cost 55 kB per request in flight, this costs 25 kB
IDLE_S = 30  # an idle connection older than this is not used again
_DISALLOW_USERNAME_IN_URL = 278  # the option has no name in pycurl
_STALE = select.POLLIN | select.POLLRDHUP


class Connections:
    """Which descriptor a connection of the cache has, to look at it before it is used again.

    Bounded by the number of descriptors: a new socket with a number overwrites what was known of the old one.
    """

    def __init__(self) -> None:
        self._by_ends: dict[tuple[int, str, int], tuple[int, select.poll]] = {}
        self._by_fd: dict[int, tuple[int, str, int]] = {}

    def opened(self, fd: int) -> None:
        """A new socket has this number."""
        ends = self._by_fd.pop(fd, None)
        if ends is not None:
            known = self._by_ends.get(ends)
            if known is not None and known[0] == fd:
                del self._by_ends[ends]

    def connected(self, fd: int, ends: tuple[int, str, int]) -> None:
        """The socket is connected; `ends` are local port, peer address and peer port."""
        poll = select.poll()
        poll.register(fd, _STALE)
        self._by_ends[ends] = (fd, poll)
        self._by_fd[fd] = ends

    def usable(self, ends: tuple[int, str, int]) -> bool:
        """False when the peer has closed or something is waiting to be read, or the connection is not known."""
        known = self._by_ends.get(ends)
        return known is not None and not known[1].poll(0)


class Easy(pycurl.Curl):
    """libcurl's object, which the multi gives back, with the way to ours."""

    handle: Handle


class Handle:
    """A pooled handle. `begin` prepares it for one transfer; afterwards the attributes tell what happened."""

    __slots__ = (
        "_connections",
        "_fresh",
        "_on_open",
        "_pin",
        "_sent",
        "_socket",
        "_url",
        "addresses",
        "body",
        "curl",
        "deadline",
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
        "target",
    )  # fmt: skip

    addresses: tuple[str, ...]
    deadline: float
    header_lines: list[str]
    policy: EgressPolicy
    request: Request
    resubmitted: bool
    started: float
    target: Target

    def __init__(self, connections: Connections, on_open: Callable[[int], None], ca_file: str) -> None:
        self._connections = connections
        self._on_open = on_open
        self._url = ""
        self._pin = ""
        self._fresh = False
        self.lines: list[bytes] = []
        self.curl = curl = Easy()
        curl.handle = self
        for option, value in (
            (pycurl.POST, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),  # one lost connection is one unknown outcome
            (pycurl.NOSIGNAL, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PROXY, ""),  # proxies of the environment would resolve names and connect past the guard
            (pycurl.NETRC, 0),
            (_DISALLOW_USERNAME_IN_URL, 1),
            (pycurl.USERAGENT, "Relay"),
            (pycurl.CAINFO, ca_file),
            (pycurl.MAXAGE_CONN, IDLE_S),
            (pycurl.BUFFERSIZE, BUFFER),
            (pycurl.UPLOAD_BUFFERSIZE, BUFFER),
            (pycurl.READFUNCTION, self._on_read),
            (pycurl.WRITEFUNCTION, self._on_write),
            # libcurl ends a head at 300 kB; it is judged when it is read. `append` costs a fifth of a method here.
            (pycurl.HEADERFUNCTION, self.lines.append),
            (pycurl.OPENSOCKETFUNCTION, self._on_open_socket),
            (pycurl.PREREQFUNCTION, self._on_prereq),
        ):
            curl.setopt(option, value)

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

    def begin(self, address: str, *, fresh: bool) -> None:
        """Make the handle ready to send the request to `address`, within what is left of the deadline."""
        self._sent = 0
        self._socket = -1
        self.sends = 0
        self.reused = False
        self.refused = ""
        self.peer: tuple[str, int] | None = None
        self.body = b""
        self.read = 0
        self.lines.clear()
        curl, request = self.curl, self.request
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
        left = max(int((self.deadline - time.monotonic()) * 1000), 1)
        curl.setopt(pycurl.TIMEOUT_MS, left)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, min(request.connect_timeout_ms, left))
        curl.setopt(pycurl.POSTFIELDSIZE_LARGE, len(request.body))
        curl.setopt(pycurl.HTTPHEADER, self.header_lines)

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
            body, at = self.request.body, self._sent
            self._sent = at + size
            return body if size >= len(body) and not at else body[at : at + size]
        except Exception:  # noqa: BLE001 - it would come out of another transfer's turn
            self.refused = "The body could not be read."
            return pycurl.READFUNC_ABORT

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
            self.peer = (peer, peer_port)
            self.reused = self._socket < 0
            if not self.policy.allows(peer, peer_port, plain=self.target.plain):
                self.refused = refusal(peer, peer_port)
                return pycurl.PREREQFUNC_ABORT
            ends = (local_port, peer, peer_port)
            if not self.reused:
                self._connections.connected(self._socket, ends)
                return pycurl.PREREQFUNC_OK
            if self._connections.usable(ends):
                return pycurl.PREREQFUNC_OK
            return pycurl.PREREQFUNC_ABORT  # nothing was written: the transport sends it on a fresh connection
        except Exception as error:  # noqa: BLE001 - it would come out of another transfer's turn
            self.refused = f"The connection could not be checked before sending: {type(error).__name__}."
            return pycurl.PREREQFUNC_ABORT


def refusal(address: str, port: int) -> str:
    """The sentence for an address that the egress policy refuses."""
    return f"The address {address} port {port} may not be called."
