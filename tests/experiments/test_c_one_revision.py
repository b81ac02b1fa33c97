"""C: of two writes with one expected revision, from two processes at once, exactly one is applied."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from tests.experiments.worker import Worker
from tests.races.rival import Observer
from tests.support import database
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, TTL_MS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'"
    " AND query LIKE '/* relay: run.save_checkpoint */%%' AND datname = current_database()"
)


@dataclass
class Seen:
    answers: list[dict[str, Any]]
    revision: int
    checkpoint: Any
    fenced: list[dict[str, Any]]


def experiment(observer: Observer, mutant: str | None = None) -> Seen:
    """Two processes of one owner, under one term, save at the same moment: both wait for the lease's row."""
    planted = rows.plant("prepared", run_status="running", run_revision=2)
    with ExitStack() as stack:
        first, second = (stack.enter_context(Worker(OWNER, planted, mutant=mutant)) for _ in range(2))
        epoch = first.ask("acquire", ttl_ms=TTL_MS, revision=2)["epoch"]
        second.ask("believe", epoch=epoch, revision=2)
        with transaction.atomic():
            database.lock("ledger_lease", "run_id", planted.run_id)
            first.send("save", value={"by": "first"})
            second.send("save", value={"by": "second"})
            wait_until(lambda: observer.scalar(WAITING) == 2, 20, "both are at the barrier")
        answers = [first.answer(), second.answer()]
    run = rows.run(planted)
    return Seen(answers, run["revision"], run["checkpoint"], rows.rows("ledger_fenced_write"))


def test_exactly_one_is_applied_and_the_other_is_told_of_the_conflict(observer: Observer) -> None:
    seen = experiment(observer)
    assert sorted(answer["answer"] for answer in seen.answers) == ["applied", "conflict"]
    assert seen.revision == 3
    winner = ("first", "second")[seen.answers[1]["answer"] == "applied"]
    assert seen.checkpoint == f'{{"by": "{winner}"}}'
    assert [(write["reason"], write["revision"], write["seen_revision"]) for write in seen.fenced] == [
        ("conflict", 2, 3)
    ]


def test_without_the_expected_revision_both_are_applied_and_one_overwrites_the_other(observer: Observer) -> None:
    seen = experiment(observer, "save: no expected revision")
    assert [answer["answer"] for answer in seen.answers] == ["applied", "applied"]
    assert seen.revision == 4
