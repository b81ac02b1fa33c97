"""Keeps the children of `up` running, and stops them in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from relay.processes import bound_to_parent
from relay.server_account import tell

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
RESTARTS, WITHIN_SECONDS = 5, 60.0


class GivenUp(RuntimeError):
    """Something ends again and again, and starting it once more would not help."""


@dataclass(slots=True)
class Restarts:
    """A bound on how often something may be started again."""

    name: str
    moments: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS))

    def count(self, reason: str) -> None:
        """Note one more restart, and say so; raise `GivenUp` when there were too many of late."""
        now = time.monotonic()
        if len(self.moments) == RESTARTS and now - self.moments[0] < WITHIN_SECONDS:
            raise GivenUp(
                f"The {self.name} {reason}, for the {RESTARTS + 1}th time in {WITHIN_SECONDS:.0f} seconds: "
                "see what it said above."
            )
        self.moments.append(now)
        tell(f"The {self.name} {reason}; it is started again.")


@dataclass(slots=True)
class Child:
    """One `manage.py` command that runs beside us, in our process group, and never outlives us."""

    name: str
    command: Sequence[str]
    drain_seconds: float
    process: subprocess.Popen[bytes] | None = None
    restarts: Restarts = field(init=False)

    def __post_init__(self) -> None:
        self.restarts = Restarts(self.name)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(MANAGE), *self.command],
            stdin=subprocess.DEVNULL,
            preexec_fn=bound_to_parent(signal.SIGTERM),  # noqa: PLW1509 - one prctl, and no lock is taken in it
        )

    def look(self) -> None:
        """Start it again when it has ended; raise `GivenUp` when that keeps happening."""
        if self.process is not None and self.process.poll() is not None:
            self.restarts.count(f"ended unexpectedly ({_how(self.process.returncode)})")
            self.start()

    def stop(self, hurry: Callable[[], bool]) -> None:
        """Ask it to drain; kill it when it takes too long, or when `hurry` says so."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.drain_seconds
        while True:
            try:
                self.process.wait(0.1)
                return
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline or hurry():
                    tell(f"The {self.name} did not stop in time: killed.")
                    self._kill(self.process)
                    return

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """End it with all that it started: left alone, its workers would drain, and go on for a while."""
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
