"""`manage.py listen`: its endpoint is open exactly while somebody listens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deliveries.models import Endpoint
from tests.support import database
from tests.support.waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SECONDS = 30.0


def started(*arguments: str, ignoring: bool = False) -> subprocess.Popen[str]:
    """The command; `ignoring` starts it as a shell starts what it runs in the background: with SIGINT ignored."""
    command = [sys.executable, "manage.py", "listen", *arguments]
    return subprocess.Popen(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command] if ignoring else command,
        cwd=BASE_DIR,
        env={**os.environ, "DATABASE_URL": database.url()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("ignoring", [False, True], ids=["in front", "in the background"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_ends_it_and_its_endpoint_is_closed_until_it_runs_again(
    signum: signal.Signals, ignoring: bool, port: int, tenant: str
) -> None:
    def endpoints() -> list[tuple[str, bool]]:
        return list(Endpoint.objects.filter(tenant_id=tenant).values_list("url", "enabled"))

    url = f"http://127.0.0.1:{port}/"
    for _ in range(2):
        with started(str(port), "--tenant", tenant, ignoring=ignoring) as process:
            try:
                wait_until(lambda: endpoints() == [(url, True)], SECONDS, "an endpoint that is enabled")
                process.send_signal(signum)
                said, _ = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        assert process.returncode == 0
        assert "Traceback" not in said
        assert "Its endpoint is disabled" in said.splitlines()[-1]
        assert endpoints() == [(url, False)]


def test_a_tenant_that_there_is_not_is_one_sentence(port: int, db: None) -> None:
    with started(str(port), "--tenant", "nope") as process:
        said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert said == "CommandError: There is no tenant nope.\n"
