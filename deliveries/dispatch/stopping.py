"""Has this worker been told to stop? Huey's parent tells by a flag that the process inherited; a slice looks at it."""

from __future__ import annotations

import os
from typing import Protocol


class Flag(Protocol):
    """What Huey's consumer hands to its workers."""

    def is_set(self) -> bool: ...


class Stop:
    """The stop signs of this process: the consumer's flag, and its parent still being there."""

    def __init__(self) -> None:
        self._flag: Flag | None = None
        self._parent: int | None = None

    def watch(self, flag: Flag) -> None:
        """Called in the consumer before it forks its workers."""
        self._flag = flag
        self._parent = os.getpid()

    @property
    def consumer(self) -> int:
        """The pid of the consumer that this process works for, or its own when there is none."""
        return self._parent if self._parent is not None else os.getpid()

    def requested(self) -> bool:
        """True once the consumer drains, or is gone: an orphan must not go on working."""
        return self.orphaned() or (self._flag is not None and self._flag.is_set())

    def orphaned(self) -> bool:
        """True once the consumer that this process works for is gone."""
        return self._parent is not None and self._parent != os.getpid() and os.getppid() != self._parent


STOP = Stop()
