"""Heads that are cut, endless, too long, malformed or of another protocol, after the whole request was read."""

from __future__ import annotations

from tests.conformance.cases import Case, Difference, Expected, answered, unknown
from tests.conformance.script import Drip, Endless, Fin, Gap, Hang, Read, Rst, Send, Step

_CUT = "head cut"
_SLOW = "head never ends"
_LONG = "long heads"
_INFORMATIONAL = "informational"
_MALFORMED = "malformed"

_END = b"Content-Length: 2\r\n\r\nok"
_STATUS = b"HTTP/1.1 200 OK\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
_SWITCHING = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"
_KIB = 1024


def _cut(name: str, head: bytes, *end: Step) -> Case:
    return Case(name, _CUT, unknown(), (Read(), Send(head), *(end or (Fin(),))))


def _slow(name: str, *steps: Step) -> Case:
    return Case(name, _SLOW, unknown(), (Read(), *steps, Hang()), by_deadline=True)


def _long(name: str, head: bytes, expect: Expected) -> Case:
    return Case(name, _LONG, expect, (Read(), Send(head), Send(_END), Hang()))


def _informational(name: str, expect: Expected, *steps: Step) -> Case:
    return Case(name, _INFORMATIONAL, expect, (Read(), *steps))


def _malformed(
    name: str,
    answer: bytes,
    expect: Expected | None = None,
    *,
    requests: Difference | None = None,
    kept: bytes | None = None,
) -> Case:
    return Case(
        name, _MALFORMED, expect or unknown(), (Read(), Send(answer), Gap(), Fin()), body=kept,
        differs={} if requests is None else {"requests": requests},
    )  # fmt: skip


def _lines(count: int, line: bytes) -> bytes:
    return b"".join(line % at for at in range(count))


_NOT_COUNTED = "libcurl keeps a copy of every header line, so there are at most 1,000; here 64 KiB are limit enough"
_TAKEN_BY_ITS_STATUS = "the head is read by our rules alone; libcurl gives up on this line before the head is complete"

CASES: tuple[Case, ...] = (
    _cut("closed after 'HTTP'", b"HTTP"),
    _cut("closed in the status line", b"HTTP/1.1 2"),
    _cut("closed after the status", b"HTTP/1.1 200"),
    _cut("closed after the status line", _STATUS),
    _cut("closed in a header line", b"HTTP/1.1 200 OK\r\nX: y"),
    _cut("closed after a header line", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
    _cut("closed half way through the empty line", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r"),
    _cut("closed in the head of a refusal", b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n"),
    _cut("reset in the head", b"HTTP/1.1 200 OK\r\nX: y\r\n", Gap(), Rst()),
    _cut("closed after 100", _CONTINUE),
    _cut("closed after 103", _HINTS),
    _cut("silent in the head, then closed", b"HTTP/1.1 200 OK\r\nX: y\r\n", Gap(0.2), Fin()),
    _slow("a head that drips", Drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 400, 0.05)),
    _slow("header lines that never end, slowly", Send(_STATUS), Endless(b"X: y\r\n", 0.05)),
    _slow("a head that stops", Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n")),
    _slow("endless 100", Endless(_CONTINUE, 0.05)),
    Case(
        "a flood of 103", _SLOW, unknown(),
        (Read(), Endless(_HINTS * 100)), timeout_ms=5_000,
    ),
    _long("98 header lines of 60 kB", _STATUS + _lines(98, b"X-%d: " + b"a" * 60_000 + b"\r\n"), unknown()),
    _long("one header line of 400 kB", _STATUS + b"X: " + b"a" * 400_000 + b"\r\n", unknown()),
    _long("one header line of 70 kB", _STATUS + b"X: " + b"a" * 70_000 + b"\r\n", unknown()),
    _long("a status line of 70 kB", b"HTTP/1.1 200 " + b"a" * 70_000 + b"\r\n", unknown()),
    _long("20,000 header lines", _STATUS + _lines(20_000, b"X-%d: aaaaaaaaaaaaaaaa\r\n"), unknown()),
    _long("6,000 header lines", _STATUS + _lines(6_000, b"X-%d: aaaaaaaaaaaaaaaa\r\n"), unknown()),
    _long("4,000 header lines", _STATUS + _lines(4_000, b"X-%d: aaaaaaaaaaaaaaaa\r\n"), unknown()),
    _long("200 header lines of 1 kB", _STATUS + _lines(200, b"X-%d: " + b"a" * 1000 + b"\r\n"), unknown()),
    _long("900 header lines", _STATUS + _lines(900, b"X-%d: aaaaaaaa\r\n"), answered()),
    Case(
        "2,000 short header lines", _LONG, unknown(),
        (Read(), Send(_STATUS + _lines(2_000, b"X-%d: a\r\n")), Send(_END), Hang()),
        differs={"requests": Difference(answered(), _NOT_COUNTED)},
    ),
    _long("101 header lines", _STATUS + _lines(101, b"X-%d: a\r\n"), answered()),
    _long("a head just inside 64 KiB", _STATUS + b"X: " + b"a" * (63 * _KIB) + b"\r\n", answered()),
    _long("a head just over 64 KiB", _STATUS + b"X: " + b"a" * (64 * _KIB - 30) + b"\r\n", unknown()),
    _informational("100 then 200", answered(), Send(_CONTINUE), Gap(), Send(_STATUS + _END)),
    _informational("102 then 200", answered(), Send(b"HTTP/1.1 102 Processing\r\n\r\n"), Gap(), Send(_STATUS + _END)),
    _informational("103 then 200", answered(), Send(_HINTS), Gap(), Send(_STATUS + _END)),
    _informational("100 and 200 at once", answered(), Send(_CONTINUE + _STATUS + _END)),
    _informational("103 then 500", answered(500), Send(_HINTS), Gap(), Send(b"HTTP/1.1 500 No\r\n" + _END)),
    _informational("101 then 200", unknown(), Send(_SWITCHING), Gap(), Send(_STATUS + _END), Fin()),
    _informational("101 and 200 at once", unknown(), Send(_SWITCHING + _STATUS + _END), Fin()),
    _informational("101 and silence", unknown(), Send(_SWITCHING), Gap(0.05), Fin()),
    _malformed("garbage", b"this is no HTTP\r\n\r\n"),
    _malformed("bytes of no protocol", bytes(range(256))),
    _malformed("a body without a head", b"<html>ok</html>\r\n"),
    _malformed("a body without a head or a line's end", b"ok"),
    _malformed("an empty line first", b"\r\n" + _STATUS + _END),
    _malformed("a preface of HTTP/2", b"\0\0\x12\x04\0\0\0\0\0\0\3\0\0\0\x80\0\4\0\1\0\0\0\5\0\xff\xff\xff"),
    _malformed("an answer of SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
    _malformed("an answer of SMTP", b"220 mail ready\r\n"),
    _malformed("a status line without a code", b"HTTP/1.1 OK\r\n" + _END),
    _malformed("the code 20", b"HTTP/1.1 20 OK\r\n" + _END),
    _malformed("the code 2000", b"HTTP/1.1 2000 OK\r\n" + _END),
    _malformed("the code 099", b"HTTP/1.1 099 OK\r\n" + _END),
    _malformed("the code -200", b"HTTP/1.1 -200 OK\r\n" + _END),
    _malformed("the code 2x0", b"HTTP/1.1 2x0 OK\r\n" + _END),
    _malformed("a status line of HTTP/2", b"HTTP/2 200\r\n" + _END),
    _malformed("a status line of HTTP/3", b"HTTP/3 200\r\n" + _END),
    _malformed("a status line of HTTP/1.2", b"HTTP/1.2 200 OK\r\n" + _END),
    _malformed("a status line of HTTP/0.9", b"HTTP/0.9 200 OK\r\n" + _END),
    _malformed("a status line of ICY", b"ICY 200 OK\r\n" + _END),
    _malformed("a status line in small letters", b"http/1.1 200 OK\r\n" + _END),
    _malformed("a status line of HTTP/1.0", b"HTTP/1.0 200 OK\r\n" + _END, answered(), kept=b"ok"),
    _malformed("a status line without a reason", b"HTTP/1.1 200\r\n" + _END, answered(), kept=b"ok"),
    _malformed("lines that end with LF alone", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", answered(), kept=b"ok"),
    _malformed("a folded header line", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n" + _END, answered(), kept=b"ok"),
    _malformed("a header line without a colon", _STATUS + b"no colon here\r\n" + _END),
    _malformed("a NUL in a header line", _STATUS + b"X: a\0b\r\n" + _END),
    _malformed(
        "a CR in a header line", _STATUS + b"X: a\rb\r\n" + _END, unknown(),
        requests=Difference(answered(), _TAKEN_BY_ITS_STATUS),
    ),
    _malformed(
        "a negative length", _STATUS + b"Content-Length: -5\r\n\r\nok", unknown(),
        requests=Difference(answered(), _TAKEN_BY_ITS_STATUS),
    ),
    _malformed(
        "a length that is no number", _STATUS + b"Content-Length: two\r\n\r\nok", unknown(),
        requests=Difference(answered(), _TAKEN_BY_ITS_STATUS),
    ),
    _malformed(
        "two lengths that differ", _STATUS + b"Content-Length: 5\r\nContent-Length: 2\r\n\r\nok", unknown(),
        requests=Difference(answered(), _TAKEN_BY_ITS_STATUS),
    ),
    _malformed("two lengths that agree", _STATUS + b"Content-Length: 2\r\n" + _END, answered(), kept=b"ok"),
    _malformed("an enormous length", _STATUS + b"Content-Length: 99999999999999999999999\r\n\r\n", answered()),
    _malformed(
        "a length and chunks", _STATUS + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        answered(), kept=b"ok",
    ),
    _malformed(
        "an unknown transfer encoding", _STATUS + b"Transfer-Encoding: sdch\r\n\r\nok", unknown(),
        requests=Difference(answered(), _TAKEN_BY_ITS_STATUS),
    ),
)  # fmt: skip
