"""Connections that die at any byte, in any way, with answers cut anywhere: what is said is never misleading.

Never "not sent" of a request that the receiver has, never "answered" of one that it has not, never a send that is not
on record. Each seed is a test; the same seed plans the same trials, the kernel's timing is its own.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.conformance.cases import Connection, Scheme
from tests.conformance.checking import inconsistent
from tests.conformance.running import Seen, Trial, run
from tests.conformance.script import (
    OK,
    Fin,
    Gap,
    HalfClose,
    Hang,
    Ragged,
    Read,
    ReadBytes,
    Rst,
    Script,
    Send,
    Step,
    Unread,
)
from tests.conformance.subjects import SUBJECTS, subject

SOAK = bool(os.environ.get("RELAY_SOAK"))
SEEDS = range(9 if SOAK else 1)
TRIALS = 300
TIMEOUT_MS = 700

_ANSWERS = (
    OK,
    b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\nabc",
)

_CONNECTIONS: tuple[tuple[Scheme, Connection, str | None], ...] = (
    *(("http", "fresh", None), ("http", "reused", None)) * 5,
    *(("tls", "fresh", "good"), ("tls", "reused", "good"), ("tls", "fresh", "TLS 1.2"), ("tls", "reused", "TLS 1.2"))
    * 2,
    ("tls", "fresh", None),  # the script is played in place of the handshake
)


def plan(chance: random.Random, number: int) -> Trial:
    """One trial: where the receiver stops reading, what it says, how it ends."""
    body = chance.randbytes(int(10 ** chance.uniform(0, 5.5)))
    ending: Step = chance.choice((Fin(), Rst(), Ragged(), Hang(), HalfClose(), Rst(), Fin()))
    where = chance.choice(
        ("before", "unread", "inside", "inside", "after", "after", "answering", "answering", "answered")
    )
    script: Script
    if where == "before":
        script = (ending,)
    elif where == "unread":
        script = (Unread(), ending)
    elif where == "inside":
        script = (ReadBytes(chance.randrange(1, 150 + len(body))), *_says(chance, chance.random() < 0.3), ending)
    else:
        script = (Read(), *_says(chance, where != "after", whole=where == "answered"), ending)
    scheme, on, server = chance.choice(_CONNECTIONS)
    return Trial(
        f"{number}: {where}", script, scheme, on, body, TIMEOUT_MS, server=server,
        receive_buffer=chance.choice((None, 4096)),
    )  # fmt: skip


def _says(chance: random.Random, something: bool, *, whole: bool = False) -> Script:
    if not something:
        return ()
    answer = chance.choice(_ANSWERS)
    cut = len(answer) if whole else chance.randrange(1, len(answer) + 1)
    pause = (Gap(0.01),) if chance.random() < 0.5 else ()
    if chance.random() < 0.3:
        first = chance.randrange(1, cut + 1)
        return (Send(answer[:first]), Gap(0.01), Send(answer[first:cut]), *pause)
    return (Send(answer[:cut]), *pause)


def misleading(seen: Seen, transport: str) -> list[str]:
    found = inconsistent(seen, keeps_connections=transport != "requests")
    trial = seen.trial
    return [f"{trial.name} ({trial.scheme}, {trial.on}, {len(trial.body)} B): {sentence}" for sentence in found]


def trials(seed: int) -> list[Trial]:
    chance = random.Random(seed)
    return [plan(chance, number) for number in range(TRIALS)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("transport", SUBJECTS)
def test_cut_anywhere_nothing_misleading_is_said(transport: str, seed: int) -> None:
    with subject(transport) as under_test:
        seen = run(under_test, trials(seed), at_once=48)
    wrong = [sentence for one in seen for sentence in misleading(one, transport)]
    assert not wrong, "\n".join(wrong)
    verdicts = {one.outcome.verdict for one in seen if one.outcome is not None}
    assert verdicts == {"answered", "not_sent", "unknown"}, "the trials did not reach every verdict"
    assert any(one.arrived for one in seen if one.outcome is not None and one.outcome.verdict == "unknown")
