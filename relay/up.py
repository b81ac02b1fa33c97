"""`manage.py up`: everything that Relay needs, started in order, looked after, and stopped in the other order.

Start: the data folder's lock, PostgreSQL, migrations, first user and key, web server and workers. Stop (SIGINT or
SIGTERM): web server, workers (they drain), PostgreSQL. After kill -9 the kernel ends the children (on Linux); the next
start finds the data and whatever is still alive.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import time
from contextlib import ExitStack
from types import FrameType
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from relay import banner, bootstrap, embedded, web
from relay.consumer import drain_seconds
from relay.database import away
from relay.env import BadVariable, Config
from relay.server_account import tell
from relay.supervisor import Child, GivenUp, Restarts

LOCK = "up.lock"
READY_SECONDS = 60.0
PORT_SECONDS = 15.0
IMPATIENT_AFTER_SECONDS = 1.0
"""A signal that comes twice at once, to the process and to its group, is one wish; a later one is a second."""


class CannotStart(RuntimeError):
    """The text says why, and what to do."""


class Up:
    """One run of `up`. `run` returns the exit code."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.stop_asked_at: float | None = None
        self.hurry = False
        self.postgres_restarts = Restarts("PostgreSQL server")
        # Stopped in this order.
        self.web = Child("web server", ("serve", "--skip-checks"), web.DRAIN_SECONDS + 5.0)
        self.workers = Child("workers", ("run_huey", "--skip-checks"), drain_seconds() + 5.0)

    def run(self) -> int:
        with ExitStack() as stack:
            crashed = stack.enter_context(_claim(self.config))
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, self._on_signal)
            stack.callback(self._stop)
            try:
                self._start(after_crash=crashed)
                self._look_after()
            except (GivenUp, embedded.EmbeddedError, web.PortTaken, CannotStart) as failed:
                tell(str(failed))
                return 1
        return 0

    # --- start ---------------------------------------------------------------------------------------------------

    def _start(self, *, after_crash: bool) -> None:
        self._await_port(PORT_SECONDS if after_crash else 0.0)
        if self.config.embedded:
            self._start_postgres()
        try:
            call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
            for found in checks.run_checks(tags=[checks.Tags.database], databases=[DEFAULT_DB_ALIAS]):
                if found.is_serious() and not found.is_silenced():
                    raise CannotStart(f"{found.msg} {found.hint or ''}".rstrip())
                tell(f"warning: {found.msg} {found.hint or ''}".rstrip())
            credentials = bootstrap.ensure(self.config.bootstrap_password, self.config.bootstrap_key)
        except OperationalError as error:
            raise CannotStart(away(error)) from error
        except CommandError as refused:
            raise CannotStart(str(refused)) from refused
        connections.close_all()  # PostgreSQL may be restarted while we wait, and our children have their own.
        self.web.start()
        self.workers.start()
        if self._await_ready():
            print(banner.text(web.address(), credentials), flush=True)  # noqa: T201 - what the person waits for

    def _await_port(self, seconds: float) -> None:
        """The web server of an `up` that was killed may need a moment to go."""
        deadline = time.monotonic() + seconds
        while not self._stopping():
            try:
                return web.check_port()
            except web.PortTaken:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        return None

    def _start_postgres(self) -> None:
        if embedded.is_alive(self.config.data_dir):
            tell("PostgreSQL is still running from an earlier start; it is stopped and started again.")
            embedded.stop(self.config.data_dir)
        embedded.ensure_running(self.config.data_dir)

    def _await_ready(self) -> bool:
        """Wait for /readyz. False when told to stop meanwhile."""
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping():
            self._look()
            status, detail = _readiness()
            if status == http.client.OK:
                return True
            if time.monotonic() > deadline:
                raise CannotStart(f"Relay is not ready after {READY_SECONDS:.0f} seconds: {detail}")
            time.sleep(0.05)
        return False

    # --- look after ----------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        while not self._stopping():
            self._look()
            time.sleep(0.1)

    def _look(self) -> None:
        if self.config.embedded and embedded.has_ended(self.config.data_dir):
            self.postgres_restarts.count("ended unexpectedly")
            embedded.ensure_running(self.config.data_dir)
        for child in (self.web, self.workers):
            child.look()

    # --- stop ----------------------------------------------------------------------------------------------------

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.stop_asked_at is None:
            self.stop_asked_at = now
        elif now - self.stop_asked_at > IMPATIENT_AFTER_SECONDS:
            self.hurry = True

    def _stopping(self) -> bool:
        return self.stop_asked_at is not None

    def _stop(self) -> None:
        if self._stopping():
            tell("Stopping: requests and sends in flight are finished first. Once more to stop at once.")
        for child in (self.web, self.workers):
            child.stop(lambda: self.hurry)
        if self.config.embedded:
            embedded.stop(self.config.data_dir)
        if self._stopping():
            tell("Stopped.")


class _claim:  # noqa: N801 - reads as the verb that it is
    """Holds the data folder for one `up`; gives whether the last one crashed.

    Raises `CannotStart` when it is held, `BadVariable` when it cannot be made or written.
    """

    def __init__(self, config: Config) -> None:
        self.path = config.data_dir / LOCK
        try:
            embedded.make_data_dir(config.data_dir)
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as refused:
            raise BadVariable(
                "RELAY_DATA_DIR", f"must be a folder that can be made and written ({refused.strerror})"
            ) from refused

    def __enter__(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(_who_runs(self.path.read_text(), str(self.path.parent))) from None
        crashed = self.path.stat().st_size > 0  # A run that ends as it should leaves no note.
        os.ftruncate(self.descriptor, 0)
        os.write(self.descriptor, json.dumps({"pid": os.getpid(), "address": web.address()}).encode())
        return crashed

    def __exit__(self, *exception: object) -> None:
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


def _who_runs(note: str, folder: str) -> str:
    try:
        known = json.loads(note)
        who = f"process {known['pid']}, {known['address']}/admin/"
    except (ValueError, KeyError):
        who = "it is still starting"
    return f"Relay is already running with the data in {folder} ({who}). Use that one, or set RELAY_DATA_DIR."


def _readiness() -> tuple[int, str]:
    """The status of /readyz (0 when nobody answers) and what it says."""
    where = urlsplit(web.address())
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=5)
    try:
        connection.request("GET", "/readyz", headers={"Host": _allowed_host()})
        answer = connection.getresponse()
        return answer.status, answer.read(10_000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as failed:
        return 0, f"the web server does not answer ({type(failed).__name__})."
    finally:
        connection.close()


def _allowed_host() -> str:
    """A Host header that Django answers."""
    first = str(settings.ALLOWED_HOSTS[0])
    return "localhost" if first == "*" else first.removeprefix(".")
