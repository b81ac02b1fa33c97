"""Huey's consumer as we run it: told to stop, it lets tasks end by themselves; killed, it leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import sys
import time
from pathlib import Path
from huey import FileHuey
from deliveries.dispatch.stopping import STOP
from relay.consumer import DrainingConsumer

place = Path(sys.argv[1])
huey = FileHuey("test", path=str(place / "queue"), results=False)

@huey.task()
def linger():
    (place / "begun").touch()
    try:
        deadline = time.monotonic() + 60
        while not STOP.requested() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)  # Work that is left to do after the order came.
        (place / ("told" if STOP.requested() else "never told")).touch()
    except BaseException as interrupted:
        (place / "interrupted").write_text(repr(interrupted))
        raise

linger()
DrainingConsumer(huey, workers=2, worker_type="process", shutdown_timeout=30).run()
(place / "ended").touch()
"""


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=BASE_DIR, stdin=subprocess.DEVNULL, start_new_session=True
    )
    wait_until((tmp_path / "begun").exists, 30, "the task begun")
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_lets_the_running_task_end_by_itself(
    consumer: subprocess.Popen[bytes], tmp_path: Path, signum: signal.Signals
) -> None:
    consumer.send_signal(signum)
    assert consumer.wait(30) == 0
    assert (tmp_path / "told").exists()
    assert (tmp_path / "ended").exists()


def test_signals_to_the_whole_group_again_and_again_interrupt_nothing(
    consumer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        os.killpg(consumer.pid, signum)
    assert consumer.wait(30) == 0
    assert (tmp_path / "told").exists()
    assert not (tmp_path / "interrupted").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent has ended")
def test_workers_whose_parent_was_killed_let_their_task_end_and_go(
    consumer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    workers = psutil.Process(consumer.pid).children(recursive=True)
    assert len(workers) == 3
    consumer.kill()
    consumer.wait(30)
    wait_until(lambda: not any(worker.is_running() for worker in workers), 30, "no worker left")
    assert (tmp_path / "told").exists()
    assert not (tmp_path / "interrupted").exists()
