"""Named places in a delivery's way at which a process can be made to die or to stand still, on purpose.

Whoever wants to see for themselves what a crash at a certain moment leads to sets RELAY_FAILPOINT for one consumer, in
a place where nothing is at stake: `after_send:kill`, or `after_send:stop:3` for the third time that this process comes
by. Unset, as in production, a point costs one comparison.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from dataclasses import dataclass
from enum import StrEnum

log = logging.getLogger("relay.dispatch")


class Point(StrEnum):
    """The places, in the order in which a delivery comes by them."""

    BEFORE_CLAIM = "before_claim"
    """Before the claim's transaction begins, whether or not anything is due: an idle dispatcher comes by too."""
    IN_CLAIM = "in_claim"
    """The claim is made, and not committed."""
    AFTER_CLAIM = "after_claim"
    """The claim's COMMIT was answered; something was claimed."""
    BEFORE_SEND = "before_send"
    """A request is signed and its lease long enough; the transport does not have it yet."""
    AFTER_SEND = "after_send"
    """The whole request was written, and the transport has said so, which is when the request has ended: usually with
    the receiver's answer. Nobody has been told of it yet. No earlier moment is known to a dispatcher for certain, since
    what the kernel has taken the receiver need not have."""
    BEFORE_SETTLE = "before_settle"
    """Before the settling transaction begins."""
    IN_SETTLE = "in_settle"
    """The outcomes are written, and not committed."""
    AFTER_SETTLE = "after_settle"
    """The settling COMMIT was answered."""


class Action(StrEnum):
    """What happens there."""

    KILL = "kill"
    """SIGKILL: the process is gone without a word to anybody."""
    STOP = "stop"
    """SIGSTOP: the process stands still until somebody sends SIGCONT."""


SIGNALS = {Action.KILL: signal.SIGKILL, Action.STOP: signal.SIGSTOP}
FORM = (
    f"must be POINT:ACTION or POINT:ACTION:TIMES, where POINT is one of {', '.join(Point)}, ACTION is "
    f"{' or '.join(Action)} and TIMES a whole number from 1"
)
_TEXT = re.compile(rf"({'|'.join(Point)}):({'|'.join(Action)})(?::([1-9][0-9]{{0,8}}))?")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """`action` at the `passing`-th time (from 1) that one process comes by `point`."""

    point: Point
    action: Action
    passing: int = 1

    def __str__(self) -> str:
        return f"{self.point}:{self.action}:{self.passing}"


def parse(text: str) -> Failpoint:
    """The failpoint that a text means. `ValueError`, whose message is `FORM`, for any other text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(FORM)
    return Failpoint(Point(found[1]), Action(found[2]), int(found[3] or 1))


_armed: Failpoint | None = None
_passed = 0


def arm(failpoint: Failpoint | None) -> None:
    """From now on this process, and every one that it forks, fails there; None: nowhere. Each counts for itself."""
    global _armed, _passed
    _armed, _passed = failpoint, 0


def reach(name: Point) -> None:
    """The process comes by a point. It does not return from a `kill`, and from a `stop` only after SIGCONT."""
    if _armed is not None and _armed.point is name:
        _pass(_armed)


def _pass(failpoint: Failpoint) -> None:
    global _passed
    _passed += 1
    if _passed == failpoint.passing:
        log.warning("failpoint %s: process %d gets %s", failpoint, os.getpid(), SIGNALS[failpoint.action].name)
        os.kill(os.getpid(), SIGNALS[failpoint.action])


def _forked() -> None:
    global _passed
    _passed = 0


os.register_at_fork(after_in_child=_forked)
