"""Who the embedded PostgreSQL runs as, and what that account must be able to reach.

PostgreSQL refuses to run as root. Started by an ordinary user it runs as that user. Started by root it runs as the
owner of the data, or as a system user that is made for it, and that user needs a way to the data and to the binaries.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM_USER = "relay-postgres"


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot be had; the text is for the person who started it."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that PostgreSQL's processes run as."""

    uid: int
    gid: int
    name: str

    @property
    def is_mine(self) -> bool:
        return self.uid == os.geteuid()

    def popen(self) -> dict[str, Any]:
        """The arguments that make `subprocess` run a program as this account."""
        return {} if self.is_mine else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        if not self.is_mine:
            os.chown(path, self.uid, self.gid)


def choose(data: Path) -> Account:
    """The account for the cluster in `data`, which need not exist yet. Raises `EmbeddedError` when there is none."""
    me = os.geteuid()
    owner = data.stat().st_uid if data.exists() else None
    if me != 0:
        if owner is not None and owner != me:
            raise EmbeddedError(
                f"{data} belongs to {_name(owner)}: start Relay as that user or as root, or set RELAY_DATA_DIR to "
                "another folder."
            )
        return Account(me, os.getegid(), _name(me))
    if owner:
        return Account(owner, data.stat().st_gid, _name(owner))
    entry = _system_user()
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _system_user() -> pwd.struct_passwd:
    """The system user for PostgreSQL, made when it is missing. Two starts at once may both try; one entry results."""
    deadline = time.monotonic() + 15
    while True:
        try:
            return pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            failure = _add_system_user()
        if failure and time.monotonic() > deadline:
            raise EmbeddedError(
                f"Relay runs as root, PostgreSQL refuses to, and the system user {SYSTEM_USER} could not be made "
                f"({failure}): make it with `useradd --system {SYSTEM_USER}`, or start Relay as an ordinary user."
            )
        if failure:
            time.sleep(0.2)  # Another useradd holds the lock on the user list.


def _add_system_user() -> str:
    """Try once; the reason why not, or nothing."""
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        return "there is no useradd on this machine"
    command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/"]
    command += ["--shell", "/usr/sbin/nologin", SYSTEM_USER]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        tell(f"PostgreSQL refuses to run as root: the system user {SYSTEM_USER} was added for it.")
        return ""
    return done.stderr.strip() or f"useradd ended with {done.returncode}"


def let_through(account: Account, paths: Iterable[Path]) -> list[Path]:
    """Make every parent folder of `paths` passable for the account, and say which had to be changed.

    Only o+x, only on the folders that lack it: their contents can still not be listed. Returns those folders.
    """
    if account.is_mine:
        return []
    changed: list[Path] = []
    for folder in _parents(paths):
        if not _may_pass(account, folder):
            _add_mode(folder, stat.S_IXOTH)
            changed.append(folder)
    if changed:
        tell(
            f"warning: PostgreSQL runs as {account.name} and could not reach its files: these folders may now be "
            f"passed through by every user (o+x; not listed or read): {', '.join(map(str, changed))}"
        )
    return changed


def let_run(account: Account, binary: Path, trees: Iterable[Path]) -> None:
    """Make PostgreSQL's own programs readable for the account when they were installed under a tight umask.

    These files are the public contents of a package; nothing else is touched.
    """
    if account.is_mine or binary.stat().st_mode & stat.S_IXOTH:
        return
    for tree in trees:
        for path in (tree, *tree.rglob("*")):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            executable = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
            _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if executable else 0))
    tell(f"warning: {account.name} could not run {binary}: PostgreSQL's files there may now be read by every user.")


def tell(line: str) -> None:
    """One line for the person at the terminal."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parents(paths: Iterable[Path]) -> list[Path]:
    """All parent folders, outermost first, once each."""
    return sorted({parent for path in paths for parent in path.resolve().parents}, key=lambda path: len(path.parts))


def _may_pass(account: Account, folder: Path) -> bool:
    """The class that applies decides alone (POSIX.1 §4.7): an owner is not helped by what others may do."""
    facts = folder.stat()
    if facts.st_uid == account.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == account.gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


def _add_mode(path: Path, bits: int) -> None:
    try:
        path.chmod(stat.S_IMODE(path.lstat().st_mode) | bits)
    except OSError as refused:
        raise EmbeddedError(
            f"PostgreSQL's account cannot reach {path}, and its mode cannot be changed ({refused.strerror}): "
            "set RELAY_DATA_DIR to a folder that other users may pass through."
        ) from refused
