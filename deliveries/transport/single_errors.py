"""One plain sentence for what went wrong with a request. The class of an error chooses the words, never a verdict."""

from __future__ import annotations

import os
import ssl
from typing import Any

from deliveries.transport.base import Evidence, Refused
from deliveries.transport.single_trace import Stopped, Trace

_LONGEST_REASON = 200


def sentence(trace: Trace, evidence: Evidence) -> str:
    """What went wrong with a request that was not answered in full, or that was stopped."""
    failure, head = trace.failure, trace.head
    if evidence.aborted:
        return "Stopped by us while in flight." if evidence.bytes_offered else "Stopped by us before it was sent."
    if isinstance(failure, Refused):
        return str(failure)
    if head.status is not None:
        return f"The receiver answered {head.status} before the request was complete."
    if head.trouble:
        return head.trouble
    chain = _chain(failure)
    if any(isinstance(one, TimeoutError) for one in chain):
        return f"No {'complete answer' if trace.sends else 'connection'} after {evidence.elapsed_ms} ms."
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"The receiver's certificate was not accepted: {_plain(one.verify_message)}."
    if not trace.sends:
        return f"{'The TLS handshake failed' if trace.peer else 'The connection could not be made'}: {_reason(chain)}."
    return f"The connection broke: {_reason(chain)}."


def os_errno(failure: Exception | None) -> int:
    """The number that the operating system gave; 0 for none."""
    if not isinstance(failure, OSError) or isinstance(failure, ssl.SSLError):
        return 0
    return failure.errno or 0


def is_late(error: Exception) -> bool:
    """Whether the error came of a wait that ended at the deadline, or by a stop."""
    return any(isinstance(one, (TimeoutError, Stopped)) for one in _chain(error))


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and what it was made from, innermost last."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        inner = [one for one in error.args if isinstance(one, BaseException)]
        error = error.__cause__ or error.__context__ or (inner[0] if inner else None)
    return chain


def _reason(chain: list[BaseException]) -> str:
    for one in chain:
        if isinstance(one, ssl.SSLError):
            return _plain(one.reason or "")
        if isinstance(one, OSError) and one.errno:
            return os.strerror(one.errno)
    return type(chain[-1]).__name__ if chain else "no reason given"


def _plain(message: Any) -> str:
    """A library's text, which may quote the receiver: printable and bounded."""
    text = "".join(character if character.isprintable() else " " for character in str(message)).strip().rstrip(".")
    return text[:_LONGEST_REASON] or "no reason given"
