"""Name look-ups for threads that may wait: one resolver for a whole process."""

from __future__ import annotations

import os
import threading

from deliveries.transport.resolve import Answer, Lookup, Resolver, look_up


class Lookups:
    """A `Resolver` that many threads use at once, each waiting for its own answer.

    A name that hangs has one look-up, however many wait for it, one after the other or at the same time.
    """

    def __init__(self, look_up: Lookup = look_up) -> None:
        self._came = threading.Condition()
        self._resolver = Resolver(look_up, _Notify(self._came))

    def answer(self, host: str, seconds: float) -> Answer | None:
        """What is known of `host`, looked up if need be; None when it did not come within `seconds`."""
        resolver = self._resolver

        def known() -> Answer | None:
            resolver.collect()
            return resolver.known(host)

        with self._came:
            answer = known()
            if answer is None:
                resolver.ask(host)
                answer = self._came.wait_for(known, max(seconds, 0.0))
            return answer


class _Notify:
    """Rung by a look-up that has ended: wakes all who wait, and each of them looks whether it was his."""

    fd = -1

    def __init__(self, came: threading.Condition) -> None:
        self._came = came

    def ring(self) -> None:
        with self._came:
            self._came.notify_all()

    def clear(self) -> None:
        """There is nothing to make silent."""

    def close(self) -> None:
        """There is nothing to close."""


_of_process: dict[int, Lookups] = {}


def shared() -> Lookups:
    """This process's look-ups. They are not carried across a fork: their threads are the parent's."""
    pid = os.getpid()
    found = _of_process.get(pid)
    if found is None:
        _of_process.clear()
        found = _of_process.setdefault(pid, Lookups())
    return found
