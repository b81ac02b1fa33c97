"""The interface of a transport, and the rule that turns evidence into a verdict."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from deliveries.egress import UrlRefused, split_url
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN

HEAD_LIMIT = 64 * 1024  # bytes of response head that are accepted
BODY_KEPT = 16 * 1024  # bytes of response body that are given back
BODY_READ = 256 * 1024  # bytes of response body after which reading stops

Headers = tuple[tuple[str, str], ...]

_SECRET_PARTS = re.compile(r"(?s)[?#].*|(?<![^/])[^/?#]*@")  # of a URL: query, fragment, user and password

# Named tuples, not dataclasses: one of each is made per request on the hot path, at a third of the cost.


class Tls(NamedTuple):
    """What a TLS connection needs besides the public certificates, each PEM and empty for nothing.

    `ca_certificates` are trusted instead of the public ones. A connection that was made with one of these is never used
    for a request with another.
    """

    ca_certificates: bytes = b""
    client_certificate: bytes = b""
    client_key: bytes = b""

    def __repr__(self) -> str:
        return "Tls(…)"  # it holds a key


PUBLIC = Tls()
"""The public certificates, and nothing of ours to show."""


class Request(NamedTuple):
    """One POST. `key` is the caller's and comes back with the outcome; at most one request per key is in flight.

    `headers` are complete but for those that frame the message (Host, Content-Length, Connection …), which are the
    transport's. Times are milliseconds; `timeout_ms` spans everything, name look-up included. `connect_timeout_ms` is
    for the look-up, and then anew for each address of the name, TLS included: one that cannot be reached or does not
    answer in time leads to the next. While there is a next one, an address gets at most half of the time that is left.
    An address that failed so is tried after the others from then on.

    Shown, it is without what may be secret: headers, body, the query of the URL.
    """

    key: int
    url: str
    headers: Headers
    body: bytes
    timeout_ms: int
    connect_timeout_ms: int = 5000
    tls: Tls = PUBLIC

    def __repr__(self) -> str:
        url = _SECRET_PARTS.sub("", self.url)
        return f"Request(key={self.key}, url={url!r}, headers={len(self.headers)}, body={len(self.body)} bytes)"


class Evidence(NamedTuple):
    """What was seen of one request. Counts are bytes; `sends` is how often the request was about to be written."""

    bytes_offered: int = 0
    body_bytes: int = 0
    body_bytes_written: int = 0
    sends: int = 0
    request_complete: bool = False
    head_complete: bool = False
    peer: str | None = None
    reused: bool = False
    resubmitted: bool = False
    aborted: bool = False
    elapsed_ms: int = 0
    code: int = 0
    os_errno: int = 0

    def as_json(self) -> dict[str, Any]:
        """The evidence as a JSON object, for the attempt's record."""
        return self._asdict()


class Outcome(NamedTuple):
    """What became of a request. `error` is empty when it was answered normally, otherwise one plain sentence.

    `http_status` is the status of a complete head, whatever the verdict. `headers` come from a head of at most 64 KiB;
    `body` is its first 16 KiB as they came, never inflated.
    """

    key: int
    verdict: str
    http_status: int | None
    headers: Headers
    body: bytes
    error: str
    evidence: Evidence


class Transport(Protocol):
    """Sends many requests at once from one thread of one process."""

    most: int
    """How many requests it sends at once. What is submitted beyond that waits, while its deadline runs."""

    @property
    def in_flight(self) -> int:
        """Requests that were submitted and not yet reported."""
        ...

    def submit(self, request: Request) -> None:
        """Begin a request. A request that may not be sent is reported by the next `poll`, as not sent."""
        ...

    def poll(self, timeout: float, wake: int | None = None) -> list[Outcome]:
        """Drive the transfers for up to `timeout` seconds; return as soon as something finished.

        Also returns, perhaps with nothing, when the descriptor `wake` is readable; reading it is the caller's.
        """
        ...

    def abort(self, keys: Iterable[int]) -> list[Outcome]:
        """Stop these requests now and report them by evidence. Keys that are not in flight are passed over."""
        ...

    def close(self) -> None:
        """Close every connection. What is still in flight is not reported."""
        ...


def connect_share(connect_s: float, left_s: float, addresses: int) -> float:
    """Seconds for connecting to the first of so many addresses; see `Request`. `left_s`: until the total deadline."""
    return connect_s if addresses == 1 else min(connect_s, left_s / 2)


def verdict_of(evidence: Evidence, status: int | None) -> str:
    """The verdict that the evidence proves.

    - answered: the head of a final response is complete, and the whole request had been written, once.
    - not sent: it was begun at most once, and nothing was offered to the socket or its body is not all written. After
      a second begin the counts may be those of the last send and prove nothing.
    - unknown: the rest, a 2xx before the request was complete among it.
    """
    if evidence.sends > 1:
        return UNKNOWN
    if evidence.sends == 0 or evidence.bytes_offered == 0:
        return NOT_SENT
    if evidence.request_complete:
        return ANSWERED if evidence.head_complete else UNKNOWN
    if evidence.head_complete and status is not None and 200 <= status < 300:
        return UNKNOWN
    return NOT_SENT if evidence.body_bytes else UNKNOWN


class ForkedTransport(RuntimeError):
    """The transport was first used in another process. Its connections are that process's: make a new one here."""

    def __init__(self) -> None:
        super().__init__("this transport was first used in another process; make a new one after the fork")


class Refused(ValueError):
    """The request may not be sent; the message says why."""


def check_tls(tls: Tls) -> None:
    """`Refused` for what cannot work, by a look that costs nothing. What is not PEM is found when it is used."""
    if bool(tls.client_certificate) != bool(tls.client_key):
        raise Refused("A client certificate and its key must be given together.")
    if b"ENCRYPTED" in tls.client_key:
        raise Refused("The client key is protected by a passphrase; it must be given without one.")


def refusal(address: str, port: int) -> str:
    """The sentence for an address that the egress policy refuses."""
    return f"The address {address} port {port} may not be called."


class Target(NamedTuple):
    """Where a URL leads: plain http or not, host name or address without brackets, port, host is an address."""

    plain: bool
    host: str
    port: int
    numeric: bool


@lru_cache(maxsize=4096)
def target_of(url: str) -> Target:
    """Take a URL apart, by the same narrow grammar as when an endpoint is saved; `Refused` otherwise."""
    try:
        scheme, host, port = split_url(url)
    except UrlRefused as refusal:
        raise Refused(refusal.reason) from None
    host = host.strip("[]").lower()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return Target(scheme == "http", host.rstrip("."), port, numeric=False)
    return Target(scheme == "http", host, port, numeric=True)


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110, 5.6.2
_FRAMING = frozenset(
    {
        "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


@lru_cache(maxsize=1024)
def check_header_name(name: str) -> None:
    """`Refused` for a name that is no token, or that frames the message and so is the transport's own."""
    if not _TOKEN.match(name):
        raise Refused("A header name is not valid.")
    if name.lower() in _FRAMING:
        raise Refused(f"The header {name} is set by the transport.")


def header_lines(headers: Headers) -> list[str]:
    """Header lines as libcurl takes them; `Refused` when a name or a value could change the request around it."""
    lines = []
    for name, value in headers:
        check_header_name(name)
        # `Name;` is libcurl's notation for a header with an empty value; `Name:` would remove it.
        lines.append(f"{name}: {value}" if value else f"{name};")
    text = "".join(lines)
    if not (text.isascii() and text.isprintable()):
        raise Refused("A header value contains a character that is not printable ASCII.")
    return lines


_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: [^\r\n]*)?\r?\n\Z")


class Head(NamedTuple):
    """A response head as far as it came. `status` is None unless it is complete and final."""

    status: int | None
    headers: Headers
    trouble: str


_NO_HEAD = Head(None, (), "")


def read_head(lines: list[bytes]) -> Head:
    """The final response's head from header lines as they came, informational responses and trailers among them.

    Stricter than libcurl, which takes `HTTP/1.1 2000 X`, a version 2 status line and a head that ends with the
    connection for a 200.
    """
    if not lines:
        return _NO_HEAD
    size = 0
    start = -1
    for at, line in enumerate(lines):
        size += len(line)
        if size > HEAD_LIMIT:
            return Head(None, (), "The response head was longer than 64 KiB.")
        if start < 0:
            found = _STATUS_LINE.match(line)
            if found is None:
                return Head(None, (), "The status line of the response was malformed.")
            status, start = int(found[1]), at
        elif line in (b"\r\n", b"\n"):
            if status >= 200:
                return Head(status, _fields(lines[start + 1 : at]), "")
            if status == 101:
                return Head(None, (), "The receiver switched protocols (101) unasked.")
            start = -1
    return Head(None, (), "The response head was cut short.")


def _fields(lines: list[bytes]) -> Headers:
    fields: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        if line[:1] in b" \t" and fields:  # an obsolete folded line continues the value before it
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.decode('latin-1').strip()}")
        else:
            fields.append((name.strip(), value.strip()))
    return tuple(fields)
