"""A descriptor by which threads wake the one that waits in poll(2)."""

from __future__ import annotations

import os
import threading


class Bell:
    """An eventfd that a late thread cannot ring after it was closed, when its number may be someone else's."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._open = True

    def ring(self) -> None:
        """Make the descriptor readable. Any thread."""
        with self._lock:
            if self._open:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Make it unreadable until the next ring."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return  # nobody rang

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self.fd)
