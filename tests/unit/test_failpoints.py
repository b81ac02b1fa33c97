"""Failing on purpose: where, how, and at which passing; and saying so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import timeit
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from deliveries import failpoints
from deliveries.failpoints import Action, Failpoint, Point, parse, reach
from relay.env import BASE_DIR, BadVariable, load


@pytest.mark.parametrize(
    "text, meant",
    [
        ("after_send:kill", Failpoint(Point.AFTER_SEND, Action.KILL, 1)),
        ("before_claim:stop:3", Failpoint(Point.BEFORE_CLAIM, Action.STOP, 3)),
        ("in_settle:kill:12", Failpoint(Point.IN_SETTLE, Action.KILL, 12)),
    ],
)
def test_a_failpoint_is_a_point_an_action_and_perhaps_a_passing(text: str, meant: Failpoint) -> None:
    assert parse(text) == meant == load({"RELAY_FAILPOINT": text}).failpoint
    assert parse(str(meant)) == meant


@pytest.mark.parametrize(
    "text", ["after_send", "after_send:", "after_send:die", "nowhere:kill", "after_send:kill:0", "after_send:kill:-1",
             "after_send:kill:1:1", "AFTER_SEND:kill", "after_send:kill:٣"],
)  # fmt: skip
def test_anything_else_is_answered_with_one_sentence_that_says_what_it_should_be(text: str) -> None:
    with pytest.raises(BadVariable) as refused:
        load({"RELAY_FAILPOINT": text})
    sentence = str(refused.value)
    assert sentence.startswith("RELAY_FAILPOINT must be POINT:ACTION")
    assert all(point in sentence for point in Point)
    assert sentence.endswith(".") and "\n" not in sentence


def test_no_failpoint_is_the_rule() -> None:
    assert load({}).failpoint is None
    assert load({"RELAY_FAILPOINT": ""}).failpoint is None


def test_a_process_fails_at_the_passing_that_was_named_and_each_fork_counts_for_itself() -> None:
    failpoints.arm(Failpoint(Point.AFTER_SEND, Action.KILL, 3))
    try:
        reach(Point.AFTER_SEND)
        reach(Point.BEFORE_SEND)
        reach(Point.AFTER_SEND)
        assert [_forked_passes(times) for times in (2, 3)] == [0, -signal.SIGKILL]
    finally:
        failpoints.arm(None)


def _forked_passes(times: int) -> int:
    """How a child that passes so often ends."""
    child = os.fork()
    if child == 0:
        for _ in range(times):
            reach(Point.AFTER_SEND)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_point_that_is_not_armed_costs_nothing_that_a_delivery_would_notice() -> None:
    """Six points each; a delivery costs a few hundred microseconds of CPU."""
    calls = 20_000
    best = min(timeit.repeat(lambda: reach(Point.AFTER_SEND), number=calls, repeat=5)) / calls
    assert best < 2e-6, f"{best * 1e9:.0f} ns a call"


def test_where_something_is_at_stake_it_is_warned_of(settings: Any) -> None:
    settings.RELAY_FAILPOINT = Failpoint(Point.AFTER_SEND, Action.KILL)
    assert "relay.W003" not in {found.id for found in run_checks()}
    (warned,) = (found for found in run_checks(include_deployment_checks=True) if found.id == "relay.W003")
    assert "RELAY_FAILPOINT" in warned.msg and "after_send:kill:1" in warned.msg


def test_a_wrong_failpoint_stops_the_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "run_huey"],
        cwd=BASE_DIR,
        env={**os.environ, "RELAY_DATA_DIR": str(tmp_path / "data"), "RELAY_FAILPOINT": "somewhere:kill"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("RELAY_FAILPOINT must be ")
    assert len(done.stderr.splitlines()) == 1
