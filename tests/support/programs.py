"""Commands of `manage.py` as processes of their own, found, signalled, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from relay.processes import bound_to_parent
from tests.support import database
from tests.support.waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent.parent

LEASE_TTL_MS = 7_500
"""Short, so that a lost worker is noticed soon: the timeout, the settle budget (5,000), a heartbeat, and 500 spare."""
TIMINGS = {
    "RELAY_LEASE_TTL_MS": str(LEASE_TTL_MS),
    "RELAY_HEARTBEAT_MS": "500",
    "RELAY_HTTP_TIMEOUT_MS": "1500",
    "RELAY_SWEEP_MS": "500",
}
START_S = 30.0
STOP_S = 20.0


class Program:
    """One command with all its processes, from the `with` to its end, after which none of them is left."""

    command: str
    arguments: tuple[str, ...] = ()

    def __init__(self, **environment: str) -> None:
        self.environment = environment
        self._process: subprocess.Popen[bytes]
        self._log: IO[bytes]

    def ready(self) -> bool:
        """Whether it does what it is there for."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        # Closed in `_end`, after the last process that writes to it.
        self._log = tempfile.TemporaryFile()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", self.command, *self.arguments],
            cwd=BASE_DIR,
            env={
                **inherited,
                **TIMINGS,
                "DATABASE_URL": database.url(),
                "RELAY_EGRESS_ALLOW": "127.0.0.0/8",
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # all its processes are found by their session, orphans too
            preexec_fn=bound_to_parent(signal.SIGKILL),  # noqa: PLW1509 - two system calls, and no lock is taken
        )
        try:
            self.wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until it is; at once an error when it has ended instead."""

        def ready() -> bool:
            assert self._process.poll() is None, f"{self.command} ended by itself with {self._process.returncode}"
            return self.ready()

        wait_until(ready, START_S, f"{self.command} is ready")

    def children(self) -> set[int]:
        """The pids of all processes that descend from the main one."""
        return {child.pid for child in psutil.Process(self.pid).children(recursive=True) if _alive(child)}

    def left(self) -> set[int]:
        """The pids of all its processes that are still alive, also without their parent."""
        return {process.pid for process in psutil.process_iter() if _session(process) == self.pid and _alive(process)}

    def said(self) -> str:
        """What its processes have written to stdout and stderr so far."""
        # With pread, because the offset of the file is shared with those who write to it.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def stand_still(self) -> None:
        """SIGSTOP to all its processes: the whole machine stands still."""
        for pid in (self.pid, *self.children()):
            suspend(pid)

    def go_on(self) -> None:
        """SIGCONT to all its processes."""
        for pid in self.left():
            os.kill(pid, signal.SIGCONT)

    def kill(self, signum: signal.Signals) -> None:
        """Signal the main process alone."""
        self._process.send_signal(signum)

    def kill_all(self) -> None:
        """SIGKILL to every one of its processes."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float = STOP_S) -> int:
        """Wait for the main process to end and give its exit code."""
        return self._process.wait(seconds)

    def _end(self) -> None:
        def gone() -> bool:
            self.kill_all()
            return not self.left()

        try:
            wait_until(gone, STOP_S, f"no process of {self.command} left")
            self._process.wait(STOP_S)
        finally:
            said = self.said()
            self._log.close()
            print(f"--- {self.command} {self.pid}\n{said}")  # shown when the test failed


def suspend(pid: int) -> None:
    """SIGSTOP, and wait until the kernel says that the process stands still."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 5, f"process {pid} stopped")


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None
