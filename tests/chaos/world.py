"""What chaos breaks: a cluster of its own, a proxy before it, a web process and consumers, with their logs kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import requests

from relay import embedded, roles
from relay.processes import bound_to_parent
from tests.support.programs import BASE_DIR, TIMINGS
from tests.support.proxy import Proxy
from tests.support.sink import reserve
from tests.support.waiting import wait_until

CONNECTIONS = 90
"""PostgreSQL's max_connections: enough for the consumers, few enough to be used up."""


class Process:
    """One `manage.py` command in a session of its own, started again whenever it is asked for and gone."""

    def __init__(self, name: str, command: str, environment: dict[str, str], logs: Path) -> None:
        self.name = name
        self.command = command
        self.environment = environment
        self.log = logs / f"{name}.log"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", self.command, "--skip-checks"],
                cwd=BASE_DIR,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=bound_to_parent(signal.SIGKILL),  # noqa: PLW1509 - two system calls, and no lock is taken
            )
        self.starts += 1

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def workers(self) -> list[int]:
        """The pids of its children, in order."""
        try:
            return sorted(child.pid for child in psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def left(self) -> list[int]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    def kill_all(self) -> None:
        """SIGKILL to every one of its processes, until none is left."""

        def gone() -> bool:
            for pid in self.left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.left()

        if self._process is not None:
            wait_until(gone, 20, f"no process of {self.name} left")
            self._process.wait(20)


class World:
    """Everything that runs, from `start` to `stop`. Faults are made from outside of it."""

    def __init__(self, folder: Path, *, consumers: int, dispatchers: int) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.proxy = Proxy(embedded.socket_dir(self.data) / ".s.PGSQL.5432")
        with reserve() as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._counts = (consumers, dispatchers)
        self.web: Process
        self.consumers: list[Process]

    @property
    def superuser(self) -> str:
        return embedded.dsn(self.data, user=embedded.SUPERUSER)

    def start_postgres(self) -> None:
        embedded.ensure_running(self.data, overrides={"max_connections": str(CONNECTIONS)})

    def start(self) -> None:
        """Start what uses the database, which is there and migrated."""
        self.proxy.__enter__()
        consumers, dispatchers = self._counts
        shared = {
            **TIMINGS,
            "DATABASE_URL": self.proxy.url(dbname=embedded.DATABASE, user=roles.RUNTIME),
            "RELAY_EGRESS_ALLOW": "127.0.0.0/8",
            "RELAY_EGRESS_HTTP": "on",
        }
        served = {"RELAY_HOST": "127.0.0.1", "RELAY_PORT": str(self.port), "RELAY_WEB_PROCESSES": "1"}
        self.web = Process("web", "serve", {**shared, **served}, self.logs)
        self.consumers = [
            Process(f"consumer-{number}", "run_huey", {**shared, "RELAY_DISPATCHERS": str(dispatchers)}, self.logs)
            for number in range(consumers)
        ]
        for process in (self.web, *self.consumers):
            process.start()
        wait_until(self._ready, 40, "the web process is ready")

    def look(self) -> list[str]:
        """Start again what has ended, PostgreSQL first; the names of what had ended by itself."""
        if not embedded.is_alive(self.data):
            self.start_postgres()
        ended = [process for process in (self.web, *self.consumers) if process.ended()]
        for process in ended:
            process.start()
        return [process.name for process in ended]

    def stop(self) -> None:
        for process in (self.web, *self.consumers):
            process.kill_all()
        self.proxy.__exit__(None, None, None)
        embedded.stop(self.data)

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/readyz", timeout=5).ok
        except requests.RequestException:
            return False

    # --- faults of PostgreSQL ----------------------------------------------------------------------------------------

    def restart_postgres(self) -> None:
        embedded.stop(self.data)
        self.start_postgres()

    def kill_postgres(self) -> None:
        """SIGKILL to the postmaster and everything below it; then start, which recovers."""
        postmaster = embedded._postmaster(self.data)
        if postmaster is not None:
            family = [postmaster, *postmaster.children(recursive=True)]
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            embedded.has_ended(self.data)  # so that it is no zombie
            wait_until(lambda: not embedded.is_alive(self.data), 20, "PostgreSQL is dead")
        self.start_postgres()

    def flush_broker(self) -> None:
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            for statement in ("DELETE FROM huey_task", "DELETE FROM huey_schedule", "DELETE FROM huey_kv"):
                connection.execute(statement)

    def holders(self) -> set[int]:
        """The processes that hold a lease at this moment; none when the database does not say."""
        try:
            with psycopg.connect(self.superuser, connect_timeout=2) as connection:
                owners = connection.execute(
                    "SELECT DISTINCT owner FROM ledger_lease WHERE owner IS NOT NULL"
                ).fetchall()
        except psycopg.OperationalError:
            return set()
        return {int(owner.rsplit(":", 2)[1]) for (owner,) in owners}

    def exhaust(self, seconds: float) -> int:
        """Take every connection that the runtime role may have, for a while; how many that were."""
        taken: list[psycopg.Connection[object]] = []
        until = time.monotonic() + seconds
        dsn = embedded.dsn(self.data)
        try:
            while time.monotonic() < until:
                try:
                    taken.append(psycopg.connect(dsn, connect_timeout=2))
                except psycopg.OperationalError:
                    time.sleep(0.05)
            return len(taken)
        finally:
            for connection in taken:
                connection.close()
