"""PostgreSQL out of a pip wheel, in the data folder, for one machine without a database server.

`ensure_running` and `stop` are all that the rest needs. The wheel gives the programs; starting, stopping and looking
after the folder is done here (docs/decisions/0002-embedded-postgresql.md says why).

    RELAY_DATA_DIR/postgres        the cluster, mode 0700, owned by the account that PostgreSQL runs as
    RELAY_DATA_DIR/postgres.lock   locked by every process of the server for as long as it lives
    RELAY_DATA_DIR/postgres.log    what the last start said before the server kept its own log

It listens on a Unix socket only, inside that folder. Who can open the socket is the superuser: the folder's mode is
the only password.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import roles
from relay.cluster import PORT, SETTINGS, SUPERUSER, environment, initialise, last_words, programs, write_settings
from relay.processes import bound_to_parent
from relay.server_account import Account, EmbeddedError, choose, let_run, let_through

__all__ = [
    "SUPERUSER",
    "EmbeddedError",
    "database_parameters",
    "dsn",
    "ensure_running",
    "has_ended",
    "is_alive",
    "make_data_dir",
    "stop",
]

DATABASE = "relay"
FORMER_ROLE = "relay"
"""Owned the database and everything in it before the roles of `relay.roles`."""
START_SECONDS = 300.0  # Recovery after a crash reads the log since the last checkpoint.
STOP_SECONDS = 60.0
SOCKET_PATH_BYTES = 100  # sun_path ends at 104 bytes on macOS and 108 on Linux.

_children: dict[Path, subprocess.Popen[bytes]] = {}


def cluster_dir(data_dir: Path) -> Path:
    return data_dir / "postgres"


def socket_dir(data_dir: Path) -> Path:
    """Where the socket is: in the cluster, or in a short folder of its own when that path is too long for a socket."""
    cluster = cluster_dir(Path(os.path.realpath(data_dir)))
    if len(os.fsencode(cluster / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES:
        return cluster
    name = hashlib.sha256(os.fsencode(cluster)).hexdigest()[:16]
    return Path("/tmp") / f"relay-{name}"  # noqa: S108 - its owner and mode are checked before it is used


def database_parameters(data_dir: Path, *, user: str = roles.RUNTIME, dbname: str = DATABASE) -> dict[str, str]:
    """libpq's parameters for the embedded database, whether it runs or not."""
    return {"dbname": dbname, "user": user, "host": str(socket_dir(data_dir)), "port": str(PORT)}


def dsn(data_dir: Path, *, user: str = roles.RUNTIME, dbname: str = DATABASE) -> str:
    return make_conninfo(**database_parameters(data_dir, user=user, dbname=dbname))


def make_data_dir(data_dir: Path) -> None:
    """The data folder itself: only its owner may list it; when that is root, PostgreSQL's account may pass through."""
    data_dir.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)


def is_alive(data_dir: Path) -> bool:
    """Whether any process of this folder's server lives, answering or not."""
    if not data_dir.is_dir():
        return False
    lock = _try_lock(data_dir)
    if lock is not None:
        os.close(lock)
    return lock is None


def has_ended(data_dir: Path) -> bool:
    """Whether a server that this process started is no more."""
    child = _children.get(cluster_dir(data_dir))
    return child is not None and child.poll() is not None


def ensure_running(data_dir: Path, *, overrides: dict[str, str] | None = None) -> str:
    """The DSN of a server that answers, started, and made first, if need be. Raises `EmbeddedError`.

    A server that is running already is used as it is. One that is started here ends with the process that called
    this (on Linux), and is found and used by the next call where it does not. `overrides` are PostgreSQL settings.
    """
    make_data_dir(data_dir)
    account = choose(cluster_dir(data_dir))
    deadline = time.monotonic() + START_SECONDS
    while (lock := _try_lock(data_dir)) is None:
        # Some process of this folder's server is alive: it works, it is starting, or it is on its way out.
        if _answers(data_dir):
            break
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"A PostgreSQL that uses {cluster_dir(data_dir)} is alive but has not answered for "
                f"{START_SECONDS:.0f} seconds: see the files in {cluster_dir(data_dir) / 'log'}."
            )
        time.sleep(0.05)
    if lock is not None:
        try:
            _start(data_dir, account, lock, overrides or {}, deadline)
        finally:
            os.close(lock)
    _make_database(data_dir)
    return dsn(data_dir)


def stop(data_dir: Path) -> None:
    """End the server, if there is one: its clients are cut off, what they committed is kept. Raises `EmbeddedError`."""
    if not data_dir.is_dir():
        return
    for signum in (signal.SIGINT, signal.SIGQUIT):  # Fast shutdown; then at once, which the next start recovers from.
        postmaster = _postmaster(data_dir)
        if postmaster is not None:
            postmaster.send_signal(signum)
        if _await_end(data_dir, STOP_SECONDS):
            child = _children.pop(cluster_dir(data_dir), None)
            if child is not None:
                child.wait(STOP_SECONDS)
            return
    raise EmbeddedError(f"The PostgreSQL that uses {cluster_dir(data_dir)} did not stop.")


def _await_end(data_dir: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (lock := _try_lock(data_dir)) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    os.close(lock)
    return True


def _try_lock(data_dir: Path) -> int | None:
    """A descriptor that holds the server's lock, or None when a process of the server has it.

    The server inherits the descriptor, and its children from it, so the kernel keeps the lock for as long as any of
    them lives, also after a crash. That tells the truth where process ids mislead: reused, or of another container.
    """
    descriptor = os.open(data_dir / "postgres.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _postmaster(data_dir: Path) -> psutil.Process | None:
    """The server process that postmaster.pid names, if it lives and works in this very folder."""
    cluster = cluster_dir(data_dir)
    try:
        process = psutil.Process(int((cluster / "postmaster.pid").read_text().split("\n", 1)[0]))
        if os.path.realpath(process.cwd()) == os.path.realpath(cluster):
            return process
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return None


def _answers(data_dir: Path) -> bool:
    try:
        psycopg.connect(dsn(data_dir, user=SUPERUSER, dbname="postgres"), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _start(data_dir: Path, account: Account, lock: int, overrides: dict[str, str], deadline: float) -> None:
    """Make the cluster if there is none, and start its server, which takes over the lock."""
    installed = programs()
    cluster = cluster_dir(data_dir)
    let_through(account, (cluster, installed / "bin" / "postgres"))
    let_run(account, installed / "bin" / "postgres", (installed, installed.parent.with_suffix(".libs")))
    if not cluster.exists():
        initialise(cluster, account, installed)
    sockets = _prepare_socket_dir(data_dir, account)
    _forget_dead_server(data_dir, sockets)
    write_settings(cluster, account, {**SETTINGS, "unix_socket_directories": f'"{sockets}"', **overrides})
    log = data_dir / "postgres.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [installed / "bin" / "postgres", "-D", os.path.realpath(cluster)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment(),
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C is for Relay, which stops its server last.
            # SIGTERM lets the clients finish: when Relay is killed, workers may still write down what they learned.
            preexec_fn=bound_to_parent(signal.SIGTERM),  # noqa: PLW1509 - one prctl, and no lock is taken in it
            umask=0o077,
            **account.popen(),
        )
    _children[cluster] = server
    while not _answers(data_dir):
        if server.poll() is not None:
            raise EmbeddedError(f"PostgreSQL did not start: {last_words(log, cluster)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"PostgreSQL has not answered for {START_SECONDS:.0f} seconds: see {cluster / 'log'}.")
        time.sleep(0.02)


def _prepare_socket_dir(data_dir: Path, account: Account) -> Path:
    """The socket's folder. One outside the cluster must be the account's alone: its name could be guessed."""
    folder = socket_dir(data_dir)
    if folder == cluster_dir(Path(os.path.realpath(data_dir))):
        return folder
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != account.uid or facts.st_mode & 0o077:
            raise EmbeddedError(
                f"{folder} should hold PostgreSQL's socket but is not a folder of {account.name} alone: remove it, or "
                "set RELAY_DATA_DIR to a shorter path."
            ) from None
    return folder


def _forget_dead_server(data_dir: Path, sockets: Path) -> None:
    """Remove what a crash left behind. Called with the lock held: no process of a server started here is alive.

    PostgreSQL would do it too, unless the old process id is in use again by something else: then it refuses to start.
    """
    stranger = _postmaster(data_dir)
    if stranger is not None:
        raise EmbeddedError(
            f"A PostgreSQL that Relay did not start is using {cluster_dir(data_dir)} (process {stranger.pid}): stop it."
        )
    (cluster_dir(data_dir) / "postmaster.pid").unlink(missing_ok=True)
    for left in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (sockets / left).unlink(missing_ok=True)


def _make_database(data_dir: Path) -> None:
    """The roles and the database that Relay uses, and what its roles may do with that database."""
    database = sql.Identifier(DATABASE)
    with psycopg.connect(dsn(data_dir, user=SUPERUSER, dbname="postgres"), autocommit=True) as connection:
        # Two starts may be here at once; the second waits.
        connection.execute("SELECT pg_advisory_lock(hashtext('relay.embedded'))")
        for role in roles.missing(connection):
            connection.execute(roles.creation(role))
        connection.execute(roles.membership())
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, sql.Identifier(roles.OWNER)))
        with psycopg.connect(dsn(data_dir, user=SUPERUSER)) as inside:
            _bring_over(inside)
            for statement in roles.database_rights(DATABASE):
                inside.execute(statement)


def _bring_over(connection: psycopg.Connection[Any]) -> None:
    """Give the owner what the former role owned, the database with it. It can log in until that is done."""
    row = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", [FORMER_ROLE]).fetchone()
    if row is None or not row[0]:
        return
    former, owner = sql.Identifier(FORMER_ROLE), sql.Identifier(roles.OWNER)
    connection.execute(sql.SQL("REASSIGN OWNED BY {} TO {}").format(former, owner))
    connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(former))
