"""Schemathesis against the real web server: every documented route, with good and bad data, alone and in sequences.

`positive_data_acceptance` is left out: no schema can say that a cursor is one of this list, or that the settings of an
endpoint go together. Every other check that there is runs: no server error, no status, header or body that is not
documented, nothing accepted that the schema forbids, no route without its key, nothing there after it was deleted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deliveries import keys
from deliveries.models import Scope
from tests.api import rows
from tests.support.web import Web

pytestmark = pytest.mark.django_db(transaction=True)

SOAK = bool(os.environ.get("RELAY_SOAK"))
EXAMPLES = "500" if SOAK else "40"
BASE_DIR = Path(__file__).parents[2]


@pytest.mark.timeout(1800 if SOAK else 300)
def test_every_answer_is_as_it_is_documented(process_environment: dict[str, str], tmp_path: Path) -> None:
    rows.tenant("default")
    _, key = keys.new_key("schemathesis", Scope.values, None)
    # No name but localhost is looked up, and no other is called.
    with Web(RELAY_EGRESS_HOSTS="localhost") as web:
        done = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{web.url}/v1/openapi.json", "--url", web.url,
                "--header", f"Authorization: Bearer {key}", "--max-examples", EXAMPLES, "--seed", "1",
                "--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure",
                "--checks", "all", "--exclude-checks", "positive_data_acceptance", "--suppress-health-check", "all",
            ],
            env={
                **os.environ, "NO_COLOR": "1", "COLUMNS": "120", "SCHEMATHESIS_HOOKS": "tests.openapi.hooks",
                "PYTHONPATH": str(BASE_DIR),
            },
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert "API Links:" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
