"""The embedded PostgreSQL: made, started, found again, and none left behind."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from relay import cluster, embedded, server_account
from tests.support.waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent.parent
AS_ROOT = os.geteuid() == 0
FAST = {"fsync": "off"}
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can be another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short path that every user may pass through, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="rl-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for data_dir in folder.rglob("postgres.lock"):
            embedded.stop(data_dir.parent)
        shutil.rmtree(folder)


def postmaster(data_dir: Path) -> int:
    return int((embedded.cluster_dir(data_dir) / "postmaster.pid").read_text().splitlines()[0])


def ask(data_dir: Path, query: str) -> object:
    with psycopg.connect(embedded.dsn(data_dir, user=embedded.SUPERUSER)) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def keep_a_note(data_dir: Path) -> None:
    with psycopg.connect(embedded.dsn(data_dir, user=embedded.SUPERUSER)) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS text")


def test_a_new_folder_becomes_a_server_that_only_a_socket_in_it_leads_to(place: Path) -> None:
    data_dir = place / "data"
    dsn = embedded.ensure_running(data_dir, overrides=FAST)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("relay_runtime", "relay")
        assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert connection.execute("SHOW data_checksums").fetchone() == ("on",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (x int)")
    assert stat.S_IMODE(embedded.cluster_dir(data_dir).stat().st_mode) == 0o700
    assert (embedded.cluster_dir(data_dir) / ".s.PGSQL.5432").is_socket()
    assert psutil.Process(postmaster(data_dir)).net_connections(kind="inet") == []


def test_the_defaults_do_not_risk_the_record(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir)
    for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
        assert ask(data_dir, f"SHOW {setting}") == "on"
    assert ask(data_dir, "SHOW log_min_error_statement") == "panic"


def test_a_server_that_runs_is_used_as_it_is(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir, overrides=FAST)
    first = postmaster(data_dir)
    embedded.ensure_running(data_dir)
    assert postmaster(data_dir) == first


def test_what_was_committed_is_there_after_stop_and_start(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir)
    keep_a_note(data_dir)
    embedded.stop(data_dir)
    assert not embedded.is_alive(data_dir)
    embedded.stop(data_dir)
    embedded.ensure_running(data_dir)
    assert ask(data_dir, "SELECT text FROM note") == "kept"


def test_a_server_that_was_killed_is_started_again_with_its_data(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir)
    keep_a_note(data_dir)
    os.kill(postmaster(data_dir), signal.SIGKILL)
    wait_until(lambda: embedded.has_ended(data_dir), 30, "the server ended")
    assert (embedded.cluster_dir(data_dir) / "postmaster.pid").exists()
    embedded.ensure_running(data_dir)
    assert ask(data_dir, "SELECT text FROM note") == "kept"


def test_a_process_id_that_is_in_use_again_by_somebody_else_does_not_block_the_start(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir, overrides=FAST)
    note = embedded.cluster_dir(data_dir) / "postmaster.pid"
    lines = note.read_text().splitlines()
    embedded.stop(data_dir)
    account = embedded.cluster_dir(data_dir).stat().st_uid
    stranger = subprocess.Popen(["sleep", "60"], user=account if AS_ROOT else None)
    try:
        note.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        embedded.ensure_running(data_dir, overrides=FAST)
        assert ask(data_dir, "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_folder_that_was_moved_is_found_at_its_new_place(place: Path) -> None:
    old, new = place / "old", place / "new"
    embedded.ensure_running(old, overrides=FAST)
    keep_a_note(old)
    embedded.stop(old)
    old.rename(new)
    embedded.ensure_running(new, overrides=FAST)
    assert ask(new, "SELECT text FROM note") == "kept"


def test_a_path_too_long_for_a_socket_gets_its_socket_elsewhere(place: Path) -> None:
    data_dir = place / ("long-" * 12) / ("path-" * 12)
    sockets = embedded.socket_dir(data_dir)
    try:
        embedded.ensure_running(data_dir, overrides=FAST)
        assert sockets != embedded.cluster_dir(data_dir)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert ask(data_dir, "SELECT 1") == 1
    finally:
        embedded.stop(data_dir)
        shutil.rmtree(sockets)


def test_a_socket_folder_that_others_may_enter_is_refused(place: Path) -> None:
    data_dir = place / ("long-" * 12) / ("path-" * 12)
    sockets = embedded.socket_dir(data_dir)
    sockets.mkdir(mode=0o700)
    sockets.chmod(0o777)
    try:
        with pytest.raises(embedded.EmbeddedError, match=str(sockets)):
            embedded.ensure_running(data_dir, overrides=FAST)
    finally:
        sockets.rmdir()


def test_an_initdb_that_was_cut_short_is_begun_again(place: Path) -> None:
    data_dir = place / "data"
    draft = data_dir / "postgres.new"
    draft.mkdir(parents=True)
    (draft / "half").write_text("made")
    data_dir.chmod(0o711)
    embedded.ensure_running(data_dir, overrides=FAST)
    assert not draft.exists()


def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    with pytest.raises(embedded.EmbeddedError, match="no_such_setting"):
        embedded.ensure_running(place / "data", overrides={"no_such_setting": "1"})
    assert not embedded.is_alive(place / "data")


def test_many_starts_at_once_make_one_server(place: Path) -> None:
    data_dir = place / "data"
    program = f"import pathlib\nfrom relay import embedded\nembedded.ensure_running(pathlib.Path({str(data_dir)!r}))\n"
    program += "print('up', flush=True)\ninput()\n"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
        assert ask(data_dir, "SELECT 1") == 1
        assert len(list((embedded.cluster_dir(data_dir)).glob("postmaster.pid"))) == 1
    finally:
        for child in children:
            child.communicate("\n", timeout=30)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent has ended")
def test_the_server_ends_with_the_process_that_started_it_even_by_kill_9(place: Path) -> None:
    data_dir = place / "data"
    program = f"import pathlib, time\nfrom relay import embedded\npath = pathlib.Path({str(data_dir)!r})\n"
    program += "embedded.ensure_running(path)\nprint('up', flush=True)\ntime.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", program], cwd=BASE_DIR, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert embedded.is_alive(data_dir)
        child.kill()
    wait_until(lambda: not embedded.is_alive(data_dir), 30, "the server ended")


# --- as root and as an ordinary user --------------------------------------------------------------------------------


@needs_root
def test_root_runs_the_server_as_a_system_user(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir, overrides=FAST)
    assert psutil.Process(postmaster(data_dir)).username() == server_account.SYSTEM_USER
    owner = pwd.getpwuid(embedded.cluster_dir(data_dir).stat().st_uid).pw_name
    assert owner == server_account.SYSTEM_USER


@needs_root
def test_root_opens_only_the_parents_that_lack_passage_and_names_them(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    closed, inner = place / "closed", place / "closed" / "passable"
    inner.mkdir(parents=True)
    private = closed / "private"
    private.write_text("secret")
    private.chmod(0o600)
    inner.chmod(0o751)
    closed.chmod(0o700)
    embedded.ensure_running(inner / "data", overrides=FAST)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o701
    assert stat.S_IMODE(inner.stat().st_mode) == 0o751
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    warnings = [line for line in capfd.readouterr().err.splitlines() if str(closed) in line]
    assert len(warnings) == 1
    assert warnings[0].endswith(str(closed))


@needs_root
def test_root_makes_programs_runnable_that_were_installed_under_a_tight_umask(place: Path) -> None:
    account = server_account.choose(place / "none")
    tree = place / "wheel"
    (tree / "bin").mkdir(parents=True)
    program, data = tree / "bin" / "postgres", tree / "data.txt"
    program.write_text("#!/bin/sh\n")
    data.write_text("x")
    program.chmod(0o700)
    data.chmod(0o600)
    tree.chmod(0o700)
    (tree / "bin").chmod(0o700)
    server_account.let_run(account, program, [tree])
    assert stat.S_IMODE(program.stat().st_mode) == 0o705
    assert stat.S_IMODE(data.stat().st_mode) == 0o604
    assert stat.S_IMODE((tree / "bin").stat().st_mode) == 0o705


def as_nobody(do: Callable[[], object]) -> str:
    """Run `do` in a forked process that has become an ordinary user; what it raised, or nothing."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)

    def run() -> None:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        try:
            do()
            theirs.send("")
        except embedded.EmbeddedError as refused:
            theirs.send(str(refused))

    process = context.Process(target=run)
    process.start()
    theirs.close()
    try:
        return str(mine.recv())
    finally:
        process.join(60)


@needs_root
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_ordinary_user_runs_the_server_as_itself(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(place / "warm", overrides=FAST)  # The way to the wheel is open now, and all is imported.
    data_dir.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody")
    os.chown(data_dir, nobody.pw_uid, nobody.pw_gid)

    def start_and_look() -> None:
        embedded.ensure_running(data_dir, overrides=FAST)
        assert psutil.Process(postmaster(data_dir)).uids().real == nobody.pw_uid
        assert ask(data_dir, "SELECT 1") == 1
        embedded.stop(data_dir)

    assert as_nobody(start_and_look) == ""
    assert embedded.cluster_dir(data_dir).stat().st_uid == nobody.pw_uid
    # Root goes on as the user who made it.
    embedded.ensure_running(data_dir, overrides=FAST)
    assert psutil.Process(postmaster(data_dir)).uids().real == nobody.pw_uid


@needs_root
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_somebody_elses_data_is_refused_with_a_sentence_that_says_whose_it_is(place: Path) -> None:
    data_dir = place / "data"
    embedded.ensure_running(data_dir, overrides=FAST)
    embedded.stop(data_dir)
    refusal = as_nobody(lambda: embedded.ensure_running(data_dir))
    assert server_account.SYSTEM_USER in refusal
    assert "RELAY_DATA_DIR" in refusal


def test_the_programs_are_those_of_the_wheel() -> None:
    version = subprocess.run(
        [cluster.programs() / "bin" / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("postgres (PostgreSQL) 18.")
