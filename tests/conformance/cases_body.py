"""Bodies of answers: whatever becomes of them, what the receiver said stands."""

from __future__ import annotations

import gzip

from deliveries.transport.base import BODY_KEPT
from tests.conformance.cases import Case, answered
from tests.conformance.script import OK, Drip, Endless, Fin, Gap, Hang, Read, Rst, Send, Step

_CUT = "body cut"
_LONG = "long bodies"
_ENCODED = "encoded bodies"
_AFTER = "after the answer"

_HEAD = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_BOMB = gzip.compress(bytes(50_000_000))


def _cut(name: str, answer: bytes, *end: Step, status: int = 200, kept: bytes | None = None) -> Case:
    return Case(
        name, _CUT, answered(status, error=True), (Read(), Send(answer), *(end or (Gap(), Fin()))), body=kept,
    )  # fmt: skip


def _whole(name: str, group: str, answer: bytes, *end: Step, status: int = 200, kept: bytes | None = None) -> Case:
    return Case(name, group, answered(status), (Read(), Send(answer), *end), body=kept)


def _framed(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *headers, b"Content-Length: %d" % len(body), b"", body])


CASES: tuple[Case, ...] = (
    _cut("closed before the body's length", _HEAD + b"Content-Length: 100\r\n\r\n0123456789", kept=b"0123456789"),
    _cut(
        "closed before the body's length, 503", b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n01",
        status=503, kept=b"01",
    ),
    _cut("closed in a chunk", _CHUNKED + b"5\r\nabc", kept=b"abc"),
    _cut("closed between chunks", _CHUNKED + b"3\r\nabc\r\n", kept=b"abc"),
    _cut("a chunk size that is no number", _CHUNKED + b"zz\r\nabc\r\n"),
    _cut("reset in the body", _HEAD + b"Content-Length: 100\r\n\r\n0123456789", Gap(), Rst()),
    Case(
        "a body that drips", _CUT, answered(error=True),
        (Read(), Send(_HEAD + b"Content-Length: 1000\r\n\r\n"), Drip(b"x" * 1000, 0.05)), by_deadline=True,
    ),
    Case(
        "a body that stops", _CUT, answered(error=True),
        (Read(), Send(_HEAD + b"Content-Length: 9\r\n\r\nhalf"), Hang()), by_deadline=True, body=b"half",
    ),
    Case(
        "a refusal whose body never comes", _CUT, answered(429, error=True),
        (Read(), Send(b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 9\r\n\r\n"), Hang()), by_deadline=True,
    ),
    _whole("a body without a length", _LONG, _HEAD + b"\r\nwhole", Fin(), kept=b"whole"),
    _whole("a body in chunks", _LONG, _CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n", kept=b"abcde"),
    _whole("a body of 200 kB", _LONG, _framed(b"b" * 200_000), kept=b"b" * BODY_KEPT),
    Case(
        "a body over the limit, length known", _LONG, answered(error=True),
        (Read(), Send(_framed(b"c" * 30_000_000))), body=b"c" * BODY_KEPT,
    ),
    Case(
        "a body over the limit, in chunks", _LONG, answered(error=True),
        (Read(), Send(_CHUNKED), Endless(b"10000\r\n" + b"d" * 65536 + b"\r\n")), body=b"d" * BODY_KEPT,
    ),
    Case(
        "a body over the limit, without a length", _LONG, answered(error=True),
        (Read(), Send(_HEAD + b"\r\n"), Endless(b"e" * 65536)), body=b"e" * BODY_KEPT,
    ),
    _whole("a gzip bomb", _ENCODED, _framed(_BOMB, b"Content-Encoding: gzip"), kept=_BOMB[:BODY_KEPT]),
    _whole("bogus gzip", _ENCODED, _framed(b"this is no gzip", b"Content-Encoding: gzip"), kept=b"this is no gzip"),
    _whole("an unknown content encoding", _ENCODED, _framed(b"ok", b"Content-Encoding: nonsense"), kept=b"ok"),
    _whole("reset after the whole answer", _AFTER, OK, Gap(), Rst(), kept=b"ok"),
    _whole("closed after the whole answer", _AFTER, OK, Fin(), kept=b"ok"),
    _whole("bytes after the body", _AFTER, OK + b"HTTP/1.1 500 Surplus\r\nContent-Length: 0\r\n\r\n", kept=b"ok"),
    _whole("a second answer soon after", _AFTER, OK, Gap(), Send(b"HTTP/1.1 500 Surplus\r\n\r\n"), kept=b"ok"),
)  # fmt: skip
