"""A minute of chaos with a fixed seed, in the gate. For more: `.ci/run chaos SECONDS SEED`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.chaos.nemesis import KINDS, plan
from tests.support.programs import BASE_DIR

SECONDS, SEED = 45, 1
BOUND_S = 150


@pytest.mark.timeout(BOUND_S + 20)
def test_after_a_minute_of_faults_nothing_is_lost_forged_or_sent_against_the_rules() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", str(SECONDS), str(SEED)],
        cwd=BASE_DIR,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    said = f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert done.returncode == 0, said
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["violations"] == 0
    assert report["events_accepted"] > 50, "it was chaos, and not only standing still"
    assert len(report["faults"]) > 10, said
    assert report["takeovers"] > 0, said


def test_one_seed_plans_the_same_faults_and_another_one_others() -> None:
    assert plan(60, 1) == plan(60, 1) != plan(60, 2)
    assert {step.kind for step in plan(60, 1)} == set(KINDS)
    assert all(0 < step.at < 60 for step in plan(60, 1))
