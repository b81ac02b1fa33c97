"""Who holds a lease: one worker session. A new process, and so every restart, is a new owner."""

from __future__ import annotations

import os
import secrets
import socket

_sessions: dict[int, str] = {}


def current() -> str:
    """`host:pid:nonce` of this process's session, never used again by another."""
    pid = os.getpid()
    if pid not in _sessions:
        _sessions.clear()  # a fork inherits its parent's, which is not its own
        _sessions[pid] = f"{socket.gethostname()}:{pid}:{secrets.token_hex(4)}"
    return _sessions[pid]


def end() -> None:
    """End this session: what it still holds is nobody's now, and is found by the reconciler like a dead worker's.

    A dispatcher that broke off, or could not settle all that it sent, calls this: the next one in its process does not
    know what had been sent, and must not find it under its own name.
    """
    _sessions.pop(os.getpid(), None)
