"""Complete answers of every status: each is reported as it was said, and none makes the transport send again."""

from __future__ import annotations

from tests.conformance.cases import Case, Difference, answered, unknown
from tests.conformance.script import Fin, Read, Send

_STATUS = "statuses"
_REDIRECT = "redirects"

_STATUSES = (
    200, 201, 202, 203, 206, 226, 299, 300, 305, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414,
    415, 417, 418, 421, 422, 423, 425, 426, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507, 511, 520, 521,
    522, 523, 524, 525, 526, 599, 600, 999,
)  # fmt: skip
_UNREAD = "requests itself would read the whole body of a redirect, without a limit; so none of it is read"
_WITHOUT_BODY = (204, 205, 304)


def _status(status: int) -> Case:
    said = b"HTTP/1.1 %d Said\r\nRetry-After: 7\r\nWWW-Authenticate: Basic\r\nContent-Length: 4\r\n\r\nsaid" % status
    differs = {"requests": Difference(answered(status), _UNREAD, b"")} if status // 100 == 3 else {}
    return Case(
        f"status {status}", _STATUS, answered(status), (Read(), Send(said)), body=b"said", differs=differs,
        fields=(("Retry-After", "7"), ("Content-Length", "4")),
    )  # fmt: skip


def _said(name: str, status: int, fields: bytes) -> Case:
    said = b"HTTP/1.1 %d Said\r\n%s\r\n\r\n" % (status, fields)
    return Case(name, _STATUS, answered(status), (Read(), Send(said)))


def _redirect(name: str, status: int, location: bytes) -> Case:
    said = b"HTTP/1.1 %d Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location)
    return Case(name, _REDIRECT, answered(status), (Read(), Send(said)))


CASES: tuple[Case, ...] = (
    *map(_status, _STATUSES),
    *(_said(f"status {status}", status, b"X: y\r\nContent-Length: 0") for status in _WITHOUT_BODY),
    _said("204 with a length", 204, b"Content-Length: 5"),
    Case(
        "408 and the connection's end", _STATUS, answered(408),
        (Read(), Send(b"HTTP/1.1 408 Late\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), Fin()),
    ),
    _said(
        "401 of a kind that invites a second request", 401,
        b"WWW-Authenticate: Digest realm=x, nonce=y, qop=auth\r\nContent-Length: 0",
    ),
    _said(
        "an answer with cookies and alternatives", 200,
        b"Set-Cookie: a=b\r\nAlt-Svc: h3=\":1\"\r\nStrict-Transport-Security: max-age=9\r\nContent-Length: 0",
    ),
    *(_redirect(f"redirect {status}", status, b"/elsewhere") for status in (301, 302, 303, 307, 308)),
    _redirect("redirect to a file", 302, b"file:///etc/passwd"),
    _redirect("redirect to junk", 302, b"::::///\x01junk"),
    _redirect("redirect to nothing", 302, b""),
    _redirect("redirect to a place of 40 kB", 307, b"/" + b"a" * 40_000),
    Case(
        "redirect to a place of 100 kB", _REDIRECT, unknown(),
        (Read(), Send(b"HTTP/1.1 302 Elsewhere\r\nLocation: /" + b"a" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n")),
    ),
    Case(
        "redirect with a body", _REDIRECT, answered(308),
        (Read(), Send(b"HTTP/1.1 308 Elsewhere\r\nLocation: /a\r\nContent-Length: 5\r\n\r\nthere")), body=b"there",
        differs={"requests": Difference(answered(308), _UNREAD, b"")},
    ),
)  # fmt: skip
