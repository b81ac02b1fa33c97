"""`manage.py up`, for real: in an empty folder, stopped, killed, twice at once, and started again."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay import embedded
from tests.support.waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SECONDS = 90.0

pytestmark = pytest.mark.timeout(300)


class Up:
    """One `manage.py up` with its output."""

    def __init__(self, data_dir: Path, port: int, **environ: str) -> None:
        self.port = port
        self.output = ""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "DATABASE_URL"))}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=BASE_DIR,
            env={**kept, "RELAY_DATA_DIR": str(data_dir), "RELAY_PORT": str(port), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
        self.process.stdout.close()

    def ready(self) -> Up:
        """Wait until it says that it runs."""
        wait_until(
            lambda: "Relay is running" in self.output or self.process.poll() is not None, SECONDS, "running or ended"
        )
        assert self.process.poll() is None, self.output
        assert get(self.port, "/readyz")[0] == 200
        return self

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        self.reader.join(SECONDS)
        return code

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.wait()


def get(port: int, path: str, key: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if "json" in answer.getheader("Content-Type", "") else body
    finally:
        connection.close()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rl-"))
    folder.chmod(0o755)
    try:
        yield folder / "data"
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder)


@pytest.fixture
def up(data_dir: Path, port: int) -> Iterator[Callable[..., Up]]:
    """Starts `up`; whatever a test leaves running is killed."""
    started: list[Up] = []

    def start(**environ: str) -> Up:
        started.append(Up(data_dir, port, **environ))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            family = one.family()
            one.process.kill()
            one.wait()
            wait_until(partial(gone, family), SECONDS, "no process left")


def test_an_empty_folder_becomes_a_running_relay_and_a_second_start_finds_it_again(up: Callable[..., Up]) -> None:
    first = up().ready()
    key = re.search(r"API key +(\S+)", first.output)
    password = re.search(r"password (\S+)", first.output)
    assert key is not None
    assert password is not None
    assert get(first.port, "/healthz") == (200, {"status": "ok"})
    assert get(first.port, "/v1/endpoints", key[1])[0] == 200
    assert get(first.port, "/v1/endpoints", "rk_wrong")[0] == 401
    assert get(first.port, "/admin/login/")[0] == 200
    family = first.family()
    assert first.stop(signal.SIGINT) == 0
    assert first.output.endswith("Stopped.\n")
    assert "Traceback" not in first.output
    assert gone(family)

    second = up().ready()
    assert key[1] not in second.output
    assert password[1] not in second.output
    assert get(second.port, "/v1/endpoints", key[1])[0] == 200
    assert second.stop(signal.SIGTERM) == 0


def test_the_printed_line_works_as_pasted_and_its_event_reaches_a_receiver(up: Callable[..., Up], port: int) -> None:
    one = up().ready()
    (listen,) = re.findall(r"^  (.* listen)$", one.output, re.MULTILINE)
    (curl,) = re.findall(r"^  (curl .*)$", one.output, re.MULTILINE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        receiver_port = free.getsockname()[1]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    shown: list[str] = []
    with subprocess.Popen(
        ["sh", "-c", f"{listen.replace('RELAY_DATA_DIR', 'exec env RELAY_DATA_DIR')} {receiver_port}"],
        env={**environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as receiver:
        assert receiver.stdout is not None
        lines = receiver.stdout
        reader = threading.Thread(target=lambda: shown.extend(iter(lines.readline, "")))
        reader.start()
        wait_until(lambda: any("Listening on" in line for line in shown), SECONDS, "a receiver that listens")
        pasted = subprocess.run(["sh", "-c", curl], env=environ, capture_output=True, text=True, timeout=30)
        answer = json.loads(pasted.stdout)
        assert answer["deliveries"] == 1
        wait_until(
            lambda: any(answer["id"] in line and "signature good" in line for line in shown), SECONDS, "the event shown"
        )
        receiver.send_signal(signal.SIGINT)
        assert receiver.wait(SECONDS) == 0
        reader.join(SECONDS)
    assert one.stop() == 0


def test_after_kill_9_nothing_is_left_behind_and_the_next_start_finds_the_data(up: Callable[..., Up]) -> None:
    first = up(RELAY_BOOTSTRAP_KEY="chosen-by-hand-0123456789").ready()
    assert "chosen-by-hand" not in first.output
    family = first.family()
    first.process.kill()
    first.wait()
    if sys.platform.startswith("linux"):
        wait_until(lambda: gone(family), SECONDS, "no process left")
    second = up().ready()
    assert get(second.port, "/v1/endpoints", "chosen-by-hand-0123456789")[0] == 200
    assert second.stop() == 0


def test_a_start_right_after_kill_9_waits_for_what_is_on_its_way_out(up: Callable[..., Up]) -> None:
    first = up().ready()
    first.process.kill()
    second = up().ready()
    assert second.stop() == 0


def test_a_second_up_says_who_is_running_and_harms_nothing(up: Callable[..., Up]) -> None:
    first = up().ready()
    second = up()
    assert second.wait() == 1
    assert f"process {first.process.pid}" in second.output
    assert f"http://127.0.0.1:{first.port}/admin/" in second.output
    assert "Traceback" not in second.output
    assert get(first.port, "/readyz")[0] == 200
    assert first.stop() == 0


def test_a_port_that_is_taken_is_said_so_and_named(up: Callable[..., Up], port: int) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # Sharing it must not be mistaken for having it.
        other.bind(("127.0.0.1", port))
        other.listen()
        one = up()
        assert one.wait() == 1
    assert "RELAY_PORT" in one.output
    assert str(port) in one.output
    assert "Traceback" not in one.output


def test_children_that_die_are_started_again(up: Callable[..., Up], data_dir: Path) -> None:
    one = up().ready()
    for restarts, words in enumerate((("manage.py", "run_huey"), ("manage.py", "serve")), start=1):
        (victim,) = [
            child
            for child in psutil.Process(one.process.pid).children()
            if all(any(word in part for part in child.cmdline()) for word in words)
        ]
        victim.kill()
        wait_until(partial(said, one, restarts, "(by SIGKILL); it is started again"), SECONDS, "a restart")
    wait_until(lambda: answers(one.port, "/readyz") == 200, SECONDS, "ready again")
    note = embedded.cluster_dir(data_dir) / "postmaster.pid"
    os.kill(int(note.read_text().splitlines()[0]), signal.SIGKILL)
    wait_until(
        lambda: "The PostgreSQL server ended unexpectedly; it is started again" in one.output, SECONDS, "a restart"
    )
    wait_until(lambda: answers(one.port, "/readyz") == 200, SECONDS, "ready again")
    assert one.stop() == 0


def said(one: Up, times: int, text: str) -> bool:
    return one.output.count(text) == times


def answers(port: int, path: str) -> int | None:
    try:
        return get(port, path)[0]
    except OSError:
        return None


def test_a_signal_for_the_whole_group_stops_it_as_well(up: Callable[..., Up]) -> None:
    one = up().ready()
    family = one.family()
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.wait() == 0
    assert "killed" not in one.output
    assert gone(family)


def test_a_wrong_bootstrap_key_stops_the_start_with_a_sentence(up: Callable[..., Up]) -> None:
    one = up(RELAY_BOOTSTRAP_KEY="short")
    assert one.wait() == 2
    assert "RELAY_BOOTSTRAP_KEY cannot be used" in one.output
    assert "Traceback" not in one.output
