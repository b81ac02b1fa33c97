"""Commands of `manage.py`: what they take, and the one sentence for what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from relay.consumer import drain_seconds
from relay.env import BASE_DIR, load
from relay.management.commands.run_huey import Command
from relay.up import Up

NOBODY_THERE = {"DATABASE_URL": "postgresql://relay@127.0.0.1:1/relay", "RELAY_SECRET_KEY": "k" * 32}


def manage(*arguments: str, data_dir: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=BASE_DIR,
        env={**os.environ, "RELAY_DATA_DIR": str(data_dir), **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_there_are_two_workers_for_each_dispatcher_and_one_for_everything_else(settings: Settings) -> None:
    settings.RELAY_DISPATCHERS = 3
    given = Command().create_parser("manage.py", "run_huey").parse_args([])
    assert (given.workers, given.worker_type) == (7, "process")


def test_a_drain_may_take_as_long_as_any_lease_and_up_waits_a_little_longer(settings: Settings) -> None:
    settings.RELAY_LEASE_TTL_MS, settings.RELAY_HTTP_TIMEOUT_MS = 60_000, 1_000
    given = Command().create_parser("manage.py", "run_huey").parse_args([])
    assert given.shutdown_timeout == drain_seconds() == 65.0
    assert Up(load({})).workers.drain_seconds == 70.0


@pytest.mark.parametrize("kind", ["thread", "greenlet"])
def test_workers_that_are_not_processes_are_refused_with_one_sentence(kind: str, tmp_path: Path) -> None:
    done = manage("run_huey", "--worker-type", kind, data_dir=tmp_path / "data")
    assert done.returncode == 2
    assert "--worker-type must be process" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [("explain", "dlv_0199a0b2000070008000000000000001"), ("createkey", "NAME")],
    ids=lambda one: one[0],
)
def test_a_database_that_is_away_is_one_sentence(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = manage(*arguments, data_dir=tmp_path / "data", **NOBODY_THERE)
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: The database does not answer")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_what_starts_with_a_database_that_is_away_names_it_and_the_reason(command: str, tmp_path: Path) -> None:
    done = manage(command, data_dir=tmp_path / "data", **NOBODY_THERE)
    assert done.returncode == 1
    assert "DATABASE_URL" in done.stderr
    assert "Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("environ", [{}, NOBODY_THERE], ids=["embedded", "external"])
def test_a_data_folder_that_cannot_be_made_is_one_sentence(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = manage("up", data_dir=tmp_path / "file" / "data", **{"RELAY_SECRET_KEY": "", **environ})
    assert done.returncode == 2
    assert "RELAY_DATA_DIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_unsafe_setting_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    done = manage("up", data_dir=tmp_path / "data", RELAY_LEASE_TTL_MS="1000", RELAY_SWEEP_MS="500")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == ["RELAY_LEASE_TTL_MS", "RELAY_HEARTBEAT_MS"]
    assert all(" Set RELAY_" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "wanted"), [("tomorrow", "2027-01-31T12:00:00Z"), ("2027-02-30", "2027-01-31"), ("2020-01-01", "than now")]
)
def test_a_time_that_is_none_is_answered_with_the_wanted_form(text: str, wanted: str, tmp_path: Path) -> None:
    done = manage("createkey", "NAME", "--expires", text, data_dir=tmp_path / "data")
    assert done.returncode == 2
    assert wanted in done.stderr.splitlines()[-1]
