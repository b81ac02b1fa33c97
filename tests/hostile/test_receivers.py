"""Hostile receivers in load: the good ones beside them are served as before, memory is bounded, every verdict right.

`RELAY_SOAK=1` has a thousand of each behaviour at once. The figures are printed (`pytest -s`).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from tests.hostile.size import SOAK
from tests.hostile.trial import Ended, Phase, Plan
from tests.transports import certificate

EACH = 1000 if SOAK else 60
LARGE_EACH = EACH // 10  # the kernel holds megabytes of each
TIMEOUT_MS = 30_000 if SOAK else 4_000
TLS_TIMEOUT_MS = 45_000 if SOAK else 6_000
ALONE_S = 10.0 if SOAK else 2.0
ROUNDS = 2
LATE_MS = 15_000 if SOAK else 5_000  # past the deadline, where everything ends at once and others share the processors
ENOUGH = 50  # good requests, to judge their latency
CPU_S = 0.01  # of processor time for each request, good or hostile
SPARE_DESCRIPTORS = 500


class Kind(NamedTuple):
    """What must become of a request. `at_deadline`: only the deadline ends it."""

    behaviour: str
    verdict: str
    error: str
    at_deadline: bool
    large: bool = False


KINDS = {
    "silent": Kind("silent", UNKNOWN, "No complete answer after", at_deadline=True),
    "slow head": Kind("slow_head", UNKNOWN, "", at_deadline=True),
    "slow body": Kind("slow_body", ANSWERED, "The response body was not complete after", at_deadline=True),
    "slow 100 Continue": Kind("slow_continue", UNKNOWN, "", at_deadline=True),
    "slow fat head": Kind("slow_fat_head", UNKNOWN, "The response head was longer than 64 KiB.", at_deadline=False),
    "slow many headers": Kind("slow_many_headers", UNKNOWN, "", at_deadline=True),
    "never reads": Kind("never_reads", UNKNOWN, "No complete answer after", at_deadline=True),
    "never reads a large body": Kind("never_reads", NOT_SENT, "Its time was over before", at_deadline=True, large=True),
    "endless 100 Continue": Kind(
        "endless_continue", UNKNOWN, "The response had more than 1,000 header lines.", at_deadline=False
    ),
    "endless head": Kind("endless_head", UNKNOWN, "The response head was longer than 64 KiB.", at_deadline=False),
    "many headers": Kind("many_headers", UNKNOWN, "The response had more than 1,000 header lines.", at_deadline=False),
    "endless body": Kind("endless_body", ANSWERED, "The response body was longer", at_deadline=False),
    "gzip bomb": Kind("gzip_bomb", ANSWERED, "", at_deadline=False),
    "garbage": Kind("garbage", UNKNOWN, "The receiver did not answer in HTTP.", at_deadline=False),
    "reset": Kind("reset", UNKNOWN, "", at_deadline=False),
}


@contextmanager
def crowd(*arguments: str) -> Iterator[dict[str, int]]:
    """The ports of the receivers, by behaviour."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.crowd", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        yield json.loads(program.stdout.readline())
    finally:
        program.kill()
        program.communicate()


def try_it(plan: Plan) -> tuple[Phase, list[Phase]]:
    """Good receivers alone, then with hostile ones beside them, once per round."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.trial"],
        input=json.dumps(plan), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    alone, *beside = [Phase(*phase) for phase in json.loads(done.stdout)]
    return alone, [phase._replace(ended=[Ended(*one) for one in phase.ended]) for phase in beside]


def fitting(kinds: int) -> int:
    """How many of each this process may have open."""
    return min(EACH, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE_DESCRIPTORS) // kinds)


@pytest.mark.timeout(900)
def test_good_receivers_are_served_beside_hostile_ones_and_every_verdict_is_right() -> None:
    each = fitting(len(KINDS))
    counts = {name: LARGE_EACH if kind.large else each for name, kind in KINDS.items()}
    with crowd() as ports, crowd() as good:
        hostile = [
            (name, f"http://127.0.0.1:{ports[kind.behaviour]}/", counts[name], kind.large)
            for name, kind in KINDS.items()
        ]
        # A server that never answers the handshake.
        counts["silent handshake"] = each
        hostile.append(("silent handshake", f"https://127.0.0.1:{ports['silent']}/", each, False))
        plan = Plan(f"http://127.0.0.1:{good['good']}/", hostile, TIMEOUT_MS, ALONE_S, ROUNDS, None)
        alone, beside = try_it(plan)
    kinds = KINDS | {"silent handshake": Kind("", NOT_SENT, "No connection after", at_deadline=True)}
    for phase in beside:
        check(phase, counts, kinds)
    compare(alone, beside)
    assert_bounded(beside, sum(counts.values()), 100_000)


OVER_TLS = ("silent", "slow head", "slow body", "slow fat head", "endless 100 Continue", "endless body", "reset")


@pytest.mark.timeout(900)
def test_over_tls_too(tmp_path: Path) -> None:
    name = "hooks.customer.com"
    _, trusted = certificate(tmp_path, name)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(trusted).read_bytes() + (tmp_path / f"{name}.key").read_bytes())
    each = fitting(len(OVER_TLS)) // 4  # the handshakes are most of the work
    counts = dict.fromkeys(OVER_TLS, each)
    with crowd(str(both)) as ports, crowd(str(both)) as good:
        hostile = [(kind, f"https://{name}:{ports[KINDS[kind].behaviour]}/", each, False) for kind in OVER_TLS]
        plan = Plan(f"https://{name}:{good['good']}/", hostile, TLS_TIMEOUT_MS, ALONE_S, ROUNDS, trusted)
        alone, beside = try_it(plan)
    for phase in beside:
        check(phase, counts, KINDS, timeout_ms=TLS_TIMEOUT_MS)
    compare(alone, beside)
    assert_bounded(beside, sum(counts.values()), 250_000)


def check(phase: Phase, counts: dict[str, int], kinds: dict[str, Kind], timeout_ms: int = TIMEOUT_MS) -> None:
    assert phase.good_failed == []
    assert Counter(one.name for one in phase.ended) == counts
    for one in phase.ended:
        kind = kinds[one.name]
        assert one.verdict == kind.verdict, one
        assert one.error.startswith(kind.error), one
        assert one.status == (200 if kind.verdict == ANSWERED else None), one
        assert one.elapsed_ms <= timeout_ms + LATE_MS, one
        if kind.at_deadline:
            assert one.elapsed_ms >= timeout_ms, one


def compare(alone: Phase, beside: list[Phase]) -> None:
    """The usual latency stays of the same order: a generous ratio, and above what a busy machine does to anything.

    While thousands are begun or end at once the processor is busy with them; those latencies are told, not judged. A
    machine that is too busy to begin them all before the first of them end is judged by processor time alone.
    """
    steady = sorted(latency for phase in beside for latency in phase.good)
    rushed = sorted(latency for phase in beside for latency in phase.rushed)
    told = [f"{len(steady)} good beside {max(phase.in_flight for phase in beside)} hostile at once"]
    for share in (0.5, 0.95):
        before, now, rush = (at(latencies, share) * 1000 for latencies in (alone.good, steady, rushed))
        told.append(f"p{share * 100:.0f} {before:.1f} -> {now:.1f} ms (in the rush {rush:.0f})")
    for phase in beside:
        growth = (phase.most - beside[0].before) / len(phase.ended) / 1000
        cpu = phase.cpu_s / len(phase.ended) * 1000
        told.append(f"{growth:.0f} kB resident and {cpu:.1f} ms of processor for each of {len(phase.ended)}")
    print("\n" + "; ".join(told))
    assert len(steady) < ENOUGH or at(steady, 0.5) < max(20 * at(alone.good, 0.5), 0.25), told
    for phase in beside:
        assert phase.cpu_s < CPU_S * (len(phase.ended) + len(phase.good) + len(phase.rushed)), told


def at(latencies: list[float], share: float) -> float:
    return latencies[int(len(latencies) * share)] if latencies else 0.0


def assert_bounded(beside: list[Phase], count: int, each: int) -> None:
    """Resident bytes per hostile request, and no more in a later round than in the first."""
    base = beside[0].before
    for phase in beside:
        assert phase.most - base < count * each + 20_000_000
