# ruff: noqa: S608 - our own names
"""`manage.py harden` on a database of one's own, and a data folder from before there were roles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from relay import embedded, roles
from relay.embedded import SUPERUSER

BASE_DIR = Path(__file__).resolve().parent.parent.parent
FAST = {"fsync": "off"}
LEGACY = "somebody"
pytestmark = pytest.mark.timeout(240)


DELIVER = """
from deliveries import endpoints, reconcile, submit
from deliveries.dispatch import claiming, settling
endpoints.create("default", {"url": "https://example.com/"})
submit.submit([submit.NewEvent("default", "a", b"1")])
found, _ = claiming.claim(claiming.Walk(), owner="o", batch=1, ttl_ms=30_000)
settling.give_back([one.claim for one in found], owner="o")
print(len(found), reconcile.sweep().expired)
"""
"""Submit, claim, settle and sweep: every one of them calls a function of the database."""


class Server:
    """A PostgreSQL that knows nothing of Relay's roles, with a database `relay` of somebody's."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        embedded.ensure_running(data_dir, overrides=FAST)
        with self.connect(SUPERUSER, "postgres") as administrator:
            administrator.execute("DROP DATABASE relay")
            for role in (roles.MIGRATOR, roles.RUNTIME, roles.READER, roles.OWNER):
                administrator.execute(f"DROP ROLE {role}".encode())

    def connect(self, user: str, dbname: str = "relay") -> psycopg.Connection[Any]:
        return psycopg.connect(embedded.dsn(self.data_dir, user=user, dbname=dbname), autocommit=True)

    def scalar(self, query: str) -> Any:
        with self.connect(SUPERUSER) as administrator:
            row = administrator.execute(query.encode()).fetchone()
        return row[0] if row else None

    def make_database(self, owner: str, attributes: str = "") -> None:
        with self.connect(SUPERUSER, "postgres") as administrator:
            administrator.execute(f"CREATE ROLE {owner} LOGIN {attributes}".encode())
            administrator.execute(f"CREATE DATABASE relay OWNER {owner}".encode())

    def url(self, user: str) -> str:
        return f"postgresql://{user}@/relay?host={quote(str(embedded.socket_dir(self.data_dir)), safe='')}"

    def manage(self, *command: str, user: str = LEGACY, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of `manage.py` with this server as a database of one's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        own = {"DATABASE_URL": self.url(user), "RELAY_SECRET_KEY": "of-no-use-outside-the-tests-0123456789"}
        return subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=BASE_DIR,
            env={**kept, **own, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def done(self, *command: str, user: str = LEGACY, **environment: str) -> str:
        """The output of a command that must succeed."""
        finished = self.manage(*command, user=user, **environment)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout + finished.stderr


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="rl-"))
    folder.chmod(0o755)
    try:
        yield Server(folder / "data")
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder)


OWNERS = (
    "SELECT string_agg(DISTINCT pg_get_userbyid(relowner), ',') FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace"
)


def test_a_database_of_ones_own_is_hardened_by_its_owner_and_keeps_its_rows(server: Server) -> None:
    server.make_database(LEGACY, "CREATEROLE")
    server.done("migrate", "--verbosity=0")
    server.done("createkey", "kept")
    assert "relay.W002" in server.done("check", "--database=default")

    shown = server.done("harden", "--dry-run", RELAY_READER_PASSWORD="a-password-that-was-given")
    assert 'CREATE ROLE "relay_owner" NOLOGIN' in shown
    assert "PASSWORD '…'" in shown
    assert "a-password" not in shown
    assert "SCRAM" not in shown
    assert server.scalar(OWNERS) == LEGACY

    said = server.done("harden", RELAY_READER_PASSWORD="a-password-that-was-given")
    assert "a-password" not in said
    passwords = dict(re.findall(r"postgresql://(relay_\w+):([\w-]{32})@", said))
    assert set(passwords) == {roles.RUNTIME, roles.MIGRATOR}
    assert server.scalar(OWNERS) == roles.OWNER
    assert str(server.scalar(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{roles.RUNTIME}'")).startswith(
        "SCRAM"
    )
    strangers = (
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND proowner <> 'relay_owner'::regrole"
    )
    assert server.scalar(strangers) == 0
    assert server.done("shell", "--no-imports", "-c", DELIVER, user=roles.RUNTIME).split() == ["1", "0"]

    again = server.done("harden", user=SUPERUSER)
    assert "Made " not in again
    assert not re.findall(r":[\w-]{32}@", again)

    assert "relay.W002" not in server.done("check", "--database=default", user=roles.RUNTIME)
    server.done("createkey", "made by the runtime", user=roles.RUNTIME)
    server.done("migrate", "--verbosity=0", user=roles.RUNTIME, RELAY_MIGRATE_DATABASE_URL=server.url(roles.MIGRATOR))
    assert server.done("shell", "--no-imports", "-c", DELIVER, user=roles.RUNTIME).split() == ["1", "0"]
    assert server.scalar("SELECT count(*) FROM deliveries_api_key") == 2
    with server.connect(roles.RUNTIME) as runtime, pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute("DELETE FROM ledger_run")


def test_an_empty_database_may_be_hardened_before_its_first_migration(server: Server) -> None:
    server.make_database(LEGACY, "CREATEROLE")
    server.done("harden")
    login = {"RELAY_MIGRATE_DATABASE_URL": server.url(roles.MIGRATOR)}
    server.done("migrate", "--verbosity=0", user=roles.RUNTIME, **login)
    assert server.scalar(OWNERS) == roles.OWNER
    server.done("createkey", "made by the runtime", user=roles.RUNTIME)


def test_several_that_migrate_at_once_take_turns(server: Server) -> None:
    server.make_database(LEGACY, "CREATEROLE")
    server.done("harden")
    login = {"RELAY_MIGRATE_DATABASE_URL": server.url(roles.MIGRATOR)}
    with ThreadPoolExecutor(3) as three:
        ends = [three.submit(server.done, "migrate", user=roles.RUNTIME, **login) for _ in range(3)]
        said = [end.result() for end in ends]
    assert sum("No migrations to apply" in one for one in said) == 2, "one did it, the others waited for it"
    server.done("createkey", "made by the runtime", user=roles.RUNTIME)


def test_the_runtime_cannot_migrate(server: Server) -> None:
    server.make_database(LEGACY, "CREATEROLE")
    server.done("harden")
    refused = server.manage("migrate", "--verbosity=0", user=roles.RUNTIME)
    assert refused.returncode != 0
    assert "RELAY_MIGRATE_DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_roles_that_are_something_elses_are_left_alone(server: Server) -> None:
    server.make_database(LEGACY, "SUPERUSER")
    with server.connect(SUPERUSER) as administrator:
        administrator.execute(f"CREATE ROLE {roles.RUNTIME} LOGIN SUPERUSER".encode())
    refused = server.manage("harden")
    assert refused.returncode == 1
    assert f"{roles.RUNTIME} (super, inherit)" in refused.stderr
    assert server.scalar("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'relay\\_%'") == 1


def test_somebody_without_the_rights_changes_nothing_and_is_told_what_is_needed(server: Server) -> None:
    server.make_database(LEGACY)
    server.done("migrate", "--verbosity=0")
    refused = server.manage("harden")
    assert refused.returncode == 1
    assert "--admin-url" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert server.scalar(OWNERS) == LEGACY
    server.done("harden", f"--admin-url={server.url(SUPERUSER)}")
    assert server.scalar(OWNERS) == roles.OWNER


def test_a_data_folder_from_before_the_roles_is_brought_over_with_its_rows(server: Server) -> None:
    server.make_database(embedded.FORMER_ROLE)
    server.done("migrate", "--verbosity=0", user=embedded.FORMER_ROLE)
    server.done("createkey", "kept", user=embedded.FORMER_ROLE)
    embedded.stop(server.data_dir)

    for _ in range(2):
        embedded.ensure_running(server.data_dir, overrides=FAST)
        server.done("migrate", "--verbosity=0", user="", DATABASE_URL="", RELAY_DATA_DIR=str(server.data_dir))
        assert server.scalar(OWNERS) == roles.OWNER
        assert server.scalar("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'relay'") == roles.OWNER
        assert server.scalar("SELECT count(*) FROM deliveries_api_key WHERE name = 'kept'") == 1
        with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
            server.connect(embedded.FORMER_ROLE)
    with server.connect(roles.RUNTIME) as runtime:
        assert runtime.execute("SELECT count(*) FROM ledger_run").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            runtime.execute("DELETE FROM ledger_run")
