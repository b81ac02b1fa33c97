"""A pytest plugin that is loaded before Django's: it decides the environment that `relay.settings` will read.

Each pytest process gets a data folder of its own, and so a PostgreSQL server of its own, unless DATABASE_URL names
one. The server is started when the first test asks for the database.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

SECRET_KEY = "of-no-use-outside-the-tests-0123456789-0123456789"


FOR_TESTS = frozenset({"RELAY_SOAK", "RELAY_REQUIRE_SPIN"})
"""What is said to the tests and not to Relay: how long trials are, and that the model checker must be there."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in `nohup … &`. Programs would inherit it, and the tests stop them as a terminal does.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("RELAY_") or name == "HUEY_URL"]:
        if name not in FOR_TESTS:
            del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="relay-tests-"))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # PostgreSQL runs as another user then, and must get through.
    early_config.add_cleanup(lambda: _remove(folder))
    os.environ.update(
        RELAY_DATA_DIR=str(folder / "data"),
        RELAY_SECRET_KEY=SECRET_KEY,
        RELAY_EGRESS_ALLOW="127.0.0.0/8,::1/128",
    )


def _remove(folder: Path) -> None:
    from relay import embedded  # Read late: coverage and assertion rewriting come first.

    embedded.stop(folder / "data")
    shutil.rmtree(folder)
