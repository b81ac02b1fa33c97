"""A: two checkpoints in one epoch are both applied, and the revision rises by one each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.experiments.worker import Worker
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, TTL_MS

pytestmark = pytest.mark.usefixtures("emptied")


@dataclass
class Seen:
    answers: list[str]
    revisions: list[int]
    checkpoint: Any
    epoch: int


def experiment(mutant: str | None = None) -> Seen:
    """A worker acquires a lease and saves twice."""
    planted = rows.plant("prepared", run_status="running", run_revision=2)
    with Worker(OWNER, planted, mutant=mutant) as worker:
        worker.ask("acquire", ttl_ms=TTL_MS, revision=2)
        answers, revisions = [], [rows.run(planted)["revision"]]
        for page in (1, 2):
            answers.append(worker.ask("save", value={"page": page})["answer"])
            revisions.append(rows.run(planted)["revision"])
    return Seen(answers, revisions, rows.run(planted)["checkpoint"], rows.lease(planted)["epoch"])


def test_two_checkpoints_of_one_term_are_both_applied_and_the_revision_rises_by_one_each_time() -> None:
    seen = experiment()
    assert seen.answers == ["applied", "applied"]
    assert seen.revisions == [2, 3, 4]
    assert seen.checkpoint == '{"page": 2}'
    assert seen.epoch == 1


def test_without_raising_the_revision_the_two_would_have_no_order() -> None:
    seen = experiment("save: no revision")
    assert seen.answers == ["applied", "applied"]
    assert seen.revisions == [2, 2, 2]
