"""Connections that die before, inside and after the request, with bodies of every size; and answers given too early."""

from __future__ import annotations

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from tests.conformance.cases import LONG_MS, Case, Expect, Expected, Size, answered, not_sent, unknown
from tests.conformance.script import (
    OK,
    Fin,
    Gap,
    HalfClose,
    Hang,
    Read,
    ReadBytes,
    ReadHead,
    Rst,
    Send,
    Step,
    Unread,
)

_BEFORE = "before the request"
_INSIDE = "inside the request"
_AFTER = "after the request"
_EARLY = "answered early"

_ALL: tuple[Size, ...] = ("7 B", "1 MB", "20 MB")
Fields = tuple[tuple[str, str], ...]
_FIELDS: Fields = (("Retry-After", "7"),)  # heard even when the request was not complete
_SMALL_BUFFER = 64 * 1024  # bytes that the receiver's kernel takes in unread
_NOT_READ = (Expect(NOT_SENT, None, 0), Expect(UNKNOWN, None, 0))
_SENT_AFRESH: Expected = (Expect(ANSWERED, 200, 1),)


def _idle(name: str, *script: Step) -> Case:
    """The connection becomes unusable between two requests: the next one goes on a fresh one, once."""
    return Case(name, _BEFORE, _SENT_AFRESH, script, on=("reused",), sizes=("7 B", "1 MB"), body=b"ok")


def _cut(name: str, *script: Step, by_deadline: bool = False, timeout_ms: int = 0) -> Case:
    return Case(
        name, _INSIDE, not_sent(), script, sizes=("20 MB",), by_deadline=by_deadline, timeout_ms=timeout_ms,
        receive_buffer=_SMALL_BUFFER,
    )  # fmt: skip


def _after(name: str, *script: Step, sizes: tuple[Size, ...] = _ALL) -> Case:
    return Case(name, _AFTER, unknown(), (Read(), *script), sizes=sizes)


def _early(name: str, answer: bytes, *script: Step, expect: Expected, fields: Fields = ()) -> Case:
    steps = (ReadBytes(100_000), Send(answer), *script)
    # Where the rest is left unread, a transport may well go on trying to write it until its deadline.
    timeout_ms = 1_500 if any(isinstance(step, Hang) for step in script) else 0
    return Case(
        name, _EARLY, expect, steps, sizes=("20 MB",), timeout_ms=timeout_ms, receive_buffer=_SMALL_BUFFER,
        fields=fields,
    )  # fmt: skip


def _refusal(status: int) -> bytes:
    return b"HTTP/1.1 %d Early\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n" % status


# Whether the head comes before the reset that destroys it is the kernel's to decide.
_REFUSED = (Expect(NOT_SENT, 413, 0), Expect(NOT_SENT, None, 0))
_CLAIMED = (Expect(UNKNOWN, 200, 0), Expect(NOT_SENT, None, 0))
# Read on by the receiver, it may all the same have been written to the end: then it is an ordinary answer.
_REFUSED_OR_READ = (Expect(NOT_SENT, 413, 0), Expect(ANSWERED, 413, 1))
_CLAIMED_OR_READ = (Expect(UNKNOWN, 200, 0), Expect(ANSWERED, 200, 1))

CASES: tuple[Case, ...] = (
    Case("reset when accepted", _BEFORE, _NOT_READ, (Rst(),), on=("fresh",)),
    Case("closed when accepted", _BEFORE, _NOT_READ, (Fin(),), on=("fresh",)),
    _idle("reset between two requests", Rst()),
    _idle("closed between two requests", Fin()),
    _idle("half closed between two requests", HalfClose()),
    _idle("a 408 and a close between two requests", Send(b"HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n"), Fin()),
    _idle("an answer too many between two requests", Send(b"HTTP/1.1 418 Stale\r\nContent-Length: 0\r\n\r\n"), Hang()),
    _idle("garbage between two requests", Send(b"\0\0\0"), Hang()),
    Case("reset with the request unread", _BEFORE, unknown(arrives=0), (Unread(), Rst())),
    Case("closed with the request unread", _BEFORE, unknown(arrives=0), (Unread(), Fin())),
    Case("reset in the request's head", _INSIDE, unknown(arrives=0), (ReadBytes(10), Rst())),
    Case("closed in the request's head", _INSIDE, unknown(arrives=0), (ReadBytes(10), Fin())),
    Case("reset at the end of the request's head", _INSIDE, unknown(arrives=0), (ReadHead(), Rst())),
    _cut("reset in the head of a long request", ReadBytes(10), Rst()),
    _cut("reset while the body is sent", ReadBytes(100_000), Rst()),
    _cut("closed while the body is sent", ReadBytes(100_000), Fin()),
    _cut("reset when half of the body was read", ReadBytes(10_000_000), Rst()),
    _cut("half closed while the body is sent", ReadBytes(100_000), HalfClose(), Hang(), timeout_ms=1_500),
    _cut("the receiver stops reading", ReadBytes(100_000), Hang(), by_deadline=True, timeout_ms=1_500),
    _cut("the receiver never reads", Unread(), Hang(), by_deadline=True, timeout_ms=1_500),
    Case(
        "the receiver stops in the middle and goes on later", _INSIDE, answered(),
        (ReadBytes(10_000_000), Gap(0.3), Read(), Send(OK)), sizes=("20 MB",), receive_buffer=_SMALL_BUFFER, body=b"ok",
    ),
    Case(
        "the receiver does not read what its kernel has taken", _AFTER, unknown(), (Unread(), Hang()),
        by_deadline=True,
    ),
    _after("reset after the request", Rst()),
    _after("closed after the request", Fin()),
    _after("half closed after the request", HalfClose()),
    Case("no answer", _AFTER, unknown(), (Read(), Hang()), by_deadline=True),
    Case(
        "no answer to a long request", _AFTER, unknown(), (Read(), Hang()), sizes=("1 MB", "20 MB"), by_deadline=True,
        timeout_ms=2_000,
    ),
    Case("an answer to a request of any size", _AFTER, answered(), (Read(), Send(OK)), sizes=_ALL, body=b"ok"),
    _early("413 early, then closed", _refusal(413), Gap(), Fin(), expect=_REFUSED),
    _early("413 early, then reset at once", _refusal(413), Rst(), expect=_REFUSED),
    _early("413 early, the rest is read", _refusal(413), expect=_REFUSED_OR_READ),
    _early("413 early, the rest is left", _refusal(413), Hang(), expect=not_sent(413), fields=_FIELDS),
    _early("429 early, the rest is left", _refusal(429), Hang(), expect=not_sent(429), fields=_FIELDS),
    _early("503 early, the rest is left", _refusal(503), Hang(), expect=not_sent(503), fields=_FIELDS),
    _early("200 early, then closed", _refusal(200), Gap(), Fin(), expect=_CLAIMED),
    _early("200 early, the rest is read", _refusal(200), expect=_CLAIMED_OR_READ),
    _early("200 early, the rest is left", _refusal(200), Hang(), expect=unknown(200, arrives=0)),
    Case(
        "an answer before anything is read", _EARLY, answered(400),
        (Send(b"HTTP/1.1 400 Early\r\nContent-Length: 0\r\n\r\n"),), on=("fresh",),
    ),
    Case(
        "an answer after the head of a short request", _EARLY, answered(403),
        (ReadHead(), Send(b"HTTP/1.1 403 Early\r\nContent-Length: 0\r\n\r\n")),
    ),
    Case("status 417 early, though nothing was expected", _EARLY, answered(417), (ReadHead(), Send(_refusal(417)))),
    Case(
        "100 when it was not asked for", _EARLY, answered(),
        (ReadHead(), Send(b"HTTP/1.1 100 Continue\r\n\r\n"), Read(), Send(OK)), sizes=("7 B", "1 MB"), body=b"ok",
    ),
    Case(
        "a receiver that would wait before a long body", _EARLY, answered(), (ReadHead(), Gap(0.05), Read(), Send(OK)),
        sizes=("1 MB",), body=b"ok", timeout_ms=LONG_MS,
    ),
)  # fmt: skip
