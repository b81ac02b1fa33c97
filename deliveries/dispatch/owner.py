"""Who holds a lease: one worker session. A new process, and so every restart, is a new owner."""

from __future__ import annotations

import os
import secrets
import socket
from functools import lru_cache


@lru_cache(maxsize=4)
def _session(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{secrets.token_hex(4)}"


def current() -> str:
    """`host:pid:nonce` of this process, the same for its whole life and never used again."""
    return _session(os.getpid())
