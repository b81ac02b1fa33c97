"""The client and the command line need nothing of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SERVERS = {"django", "ninja", "deliveries", "ledger", "huey", "psycopg", "granian"}


@pytest.mark.parametrize(
    "module", ["relay", "relay.client", "relay.client.webhooks", "relay.cli.app", "relay.listener"]
)
def test_it_is_imported_without_the_server_and_reads_no_settings(module: str) -> None:
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}}, *sys.modules)"
    environment = {**os.environ, "DATABASE_URL": "not a database", "RELAY_PORT": "not a port"}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=BASE_DIR, env=environment, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stderr
    assert not SERVERS & set(said.stdout.split())
    assert "relay.settings" not in said.stdout.split()


def test_verifying_a_shared_secret_needs_no_other_library() -> None:
    program = "import sys, relay.client.webhooks; print(*{name.partition('.')[0] for name in sys.modules})"
    said = subprocess.run([sys.executable, "-c", program], cwd=BASE_DIR, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert "cryptography" not in said.stdout.split()


def test_python_m_relay_is_the_command_line() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "relay", "--help"], cwd=BASE_DIR, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0
    assert said.stdout.startswith("Usage: relay ")
