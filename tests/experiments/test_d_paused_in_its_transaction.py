"""D: a holder was validated and stands still inside its transaction: a takeover waits for it, and then proceeds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ledger.managers import lease
from ledger.outcome import Applied
from ledger.statements import in_transaction
from tests.experiments.worker import Worker, wait_for_the_end_of_the_lease
from tests.races.rival import Observer, Rival
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")


@dataclass
class Seen:
    """`read`: the run's revision as whoever took over saw it first."""

    blocked: bool
    committed: str
    read: int
    revision: int
    epoch: int
    late: str = ""


def experiment(observer: Observer, mutant: str | None = None, *, patience_ms: int | None = None) -> Seen:
    """A worker saves, and is stopped before it commits; when its lease has run out somebody takes over.

    `patience_ms`: for how long the worker's transaction may do nothing; it is only woken when that is over.
    """
    planted = rows.plant("prepared", run_status="running", run_revision=2)
    environment = {} if patience_ms is None else {"RELAY_LEASE_TTL_MS": str(patience_ms)}
    with Worker(OWNER, planted, mutant=mutant, **environment) as worker:
        worker.ask("acquire", ttl_ms=1_000, revision=2)
        worker.ask("begin")
        assert worker.ask("save", value={"page": 1})["answer"] == "applied"
        worker.stand_still()
        wait_for_the_end_of_the_lease(planted)

        def take_over() -> tuple[int, int]:
            taken = in_transaction(lambda: lease.acquire([planted.run_id], owner=RIVAL, ttl_ms=TTL_MS))
            answer = taken[planted.run_id]
            assert isinstance(answer, Applied)
            return answer.row.epoch, rows.run(planted)["revision"]

        rival = Rival(take_over)
        if patience_ms is None:
            blocked = observer.see_waiting_or_done(rival)
            if blocked:
                observer.see_waiting(rival, "lease.acquire")
        else:
            blocked = False
            wait_until(lambda: rival.done, 20, "PostgreSQL ended the transaction that did nothing")
        worker.go_on()
        committed = worker.ask("commit")["answer"]
        epoch, read = rival.result()
        late = worker.ask("save", value={"page": 2})["answer"]
    return Seen(blocked, committed, read, rows.run(planted)["revision"], epoch, late)


def test_the_takeover_waits_for_the_holders_commit_and_then_reads_what_it_wrote(observer: Observer) -> None:
    seen = experiment(observer)
    assert seen.blocked
    assert seen.committed == "applied"
    assert seen.epoch == 2
    assert (seen.read, seen.revision) == (3, 3), "one order: the holder's write, and then the next term"
    assert seen.late == "lease_lost"


def test_a_holder_that_stands_still_for_longer_than_a_lease_loses_its_transaction_and_holds_up_nobody(
    observer: Observer,
) -> None:
    seen = experiment(observer, patience_ms=2_000)
    assert seen.committed == "error"
    assert (seen.epoch, seen.read, seen.revision) == (2, 2, 2), "nothing of it was written"
    assert seen.late == "lease_lost"


def test_without_the_lock_the_run_changes_under_the_feet_of_whoever_took_over(observer: Observer) -> None:
    seen = experiment(observer, "save: no lock")
    assert not seen.blocked
    assert seen.committed == "applied"
    assert (seen.read, seen.revision) == (2, 3)
