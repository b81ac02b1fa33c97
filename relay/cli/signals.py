"""Commands that go on until somebody stops them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. Both are asked for: a shell starts what it runs in the background with
    SIGINT ignored. Main thread only."""
    stopping = threading.Event()
    before = {signum: signal.signal(signum, lambda *_: stopping.set()) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
