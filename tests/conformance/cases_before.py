"""Names, addresses and connections: what goes wrong before there is anybody to send to."""

from __future__ import annotations

from tests.conformance.cases import Case, answered, not_sent
from tests.conformance.script import OK, Read, Send

_NAMES = "names"
_CONNECTING = "connecting"
_REFUSED = "refused before the wire"


def _name(name: str, host: str, *, within_ms: int = 0, timeout_ms: int = 0, connect_ms: int = 5_000) -> Case:
    return Case(
        name, _NAMES, not_sent(), on=("fresh",), to="closed port", host=f"{host}.example.com",
        within_ms=within_ms, timeout_ms=timeout_ms, connect_ms=connect_ms,
    )  # fmt: skip


def _url(name: str, url: str, *, group: str = _REFUSED) -> Case:
    return Case(name, group, not_sent(), over=("http",), on=("fresh",), to=url)


CASES: tuple[Case, ...] = (
    _name("the name does not exist", "not-there"),
    _name("the name server fails", "server-fails"),
    _name("the name server refuses", "server-refuses"),
    _name("the name has no address", "no-address"),
    _name("the resolver gives up first", "gives-up"),
    _name("the name server is silent to the deadline", "silent", timeout_ms=400),
    _name("the name server is slower than the connect limit", "slow", connect_ms=300, within_ms=300),
    _name("a label of the name is too long", "a" * 64),
    Case(
        "two addresses, the first refuses", _NAMES, answered(), (Read(), Send(OK)), on=("fresh",),
        host="first-refuses.example.com", body=b"ok",
    ),
    Case(
        "the first of two addresses never answers", _NAMES, answered(), (Read(), Send(OK)), on=("fresh",),
        host="first-silent.example.com", silent="127.0.0.2", connect_ms=1_500, body=b"ok",
    ),
    Case(
        "the first of two addresses never answers, and might take all of the time", _NAMES, answered(),
        (Read(), Send(OK)), on=("fresh",), host="first-silent.example.com", silent="127.0.0.2", timeout_ms=4_000,
        body=b"ok",
    ),
    _name("every address of the name refuses", "all-refuse"),
    _name("the address may not be called", "private"),
    _name("one address of two may not be called", "mixed"),
    Case("the port is closed", _CONNECTING, not_sent(), on=("fresh",), to="closed port"),
    _url("the network is unreachable, broadcast", "http://255.255.255.255:9/", group=_CONNECTING),
    _url("the network is unreachable, multicast", "http://224.0.0.1:9/", group=_CONNECTING),
    _url("the address needs an interface", "http://[fe80::1]:9/", group=_CONNECTING),
    Case(
        "nobody accepts the connection", _CONNECTING, not_sent(), on=("fresh",), to="full backlog",
        connect_ms=350, within_ms=350,
    ),
    Case(
        "the deadline passes while connecting", _CONNECTING, not_sent(), on=("fresh",), to="full backlog",
        timeout_ms=350,
    ),
    _url("a scheme that is not http or https", "ftp://127.0.0.1/"),
    _url("a URL without a host", "http:///path"),
    _url("a URL with a user name", "http://user:word@127.0.0.1:9/"),
    _url("a port that does not exist", "http://127.0.0.1:99999/"),
    _url("a URL with a space", "http://127.0.0.1:9/a b"),
    _url("a URL with a line break", "http://127.0.0.1:9/\r\nX: y"),
    _url("an address in a number", "http://2130706433/"),
    _url("an address that may not be called", "http://10.0.0.1:9/"),
    Case(
        "a header value with a line break", _REFUSED, not_sent(), (Read(), Send(OK)), on=("fresh",),
        headers=(("X-Evil", "a\r\nInjected: yes"),),
    ),
    Case(
        "a header that frames the message", _REFUSED, not_sent(), (Read(), Send(OK)), on=("fresh",),
        headers=(("Content-Length", "1"),),
    ),
)  # fmt: skip
