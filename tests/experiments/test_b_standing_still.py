"""B: a worker stands still (SIGSTOP) past its lease, another takes over, and it wakes (SIGCONT) and changes nothing.

The woken process tries all four of its writes, each with what it believed when it fell asleep. Who took over is another
owner, or one of the same name (a worker whose name does not change when it is restarted), where only the epoch tells
the two apart; or nobody, where only the lease's end does.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest

from ledger.managers import lease
from ledger.outcome import Applied
from ledger.statements import in_transaction
from tests.experiments.worker import Worker, state, wait_for_the_end_of_the_lease
from tests.support import ledger_rows as rows
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import endpoint, events, submitted
from tests.support.ledger_rows import OWNER, RIVAL
from tests.support.programs import suspend
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

WRITES: dict[str, dict[str, Any]] = {"renew": {}, "save": {"value": {"by": "the woken"}}, "settle": {}, "release": {}}
SHORT_MS, LONG_MS = 1_000, 60_000
SOON_S = 10.0


@dataclass
class Seen:
    before: dict[str, dict[str, Any]]
    answers: dict[str, str] = field(default_factory=dict)
    after: dict[str, dict[str, Any]] = field(default_factory=dict)
    fenced: list[dict[str, Any]] = field(default_factory=list)
    takeovers: list[dict[str, Any]] = field(default_factory=list)


def experiment(successor: str | None, writes: tuple[str, ...] = tuple(WRITES), mutant: str | None = None) -> Seen:
    """A worker claims, stands still until its lease has run out and `successor` holds the next, and wakes to write."""
    planted = rows.plant("prepared")
    with Worker(OWNER, planted, mutant=mutant) as worker:
        assert worker.ask("claim", ttl_ms=SHORT_MS)["epoch"] == 1
        worker.stand_still()
        wait_for_the_end_of_the_lease(planted)
        if successor is not None:
            taken = in_transaction(lambda: lease.acquire([planted.run_id], owner=successor, ttl_ms=LONG_MS))
            assert isinstance(taken[planted.run_id], Applied)
        seen = Seen(state(planted))
        for write in writes:
            worker.send(write, **WRITES[write])
        worker.go_on()
        seen.answers = {write: worker.answer()["answer"] for write in writes}
    seen.after = state(planted)
    seen.fenced, seen.takeovers = rows.rows("ledger_fenced_write"), rows.rows("ledger_takeover")
    return seen


@pytest.mark.parametrize("successor", [RIVAL, OWNER], ids=["another owner", "an owner of the same name"])
def test_renew_save_settle_and_release_of_a_worker_that_woke_after_a_takeover_change_nothing(successor: str) -> None:
    seen = experiment(successor)
    assert seen.answers == dict.fromkeys(WRITES, "lease_lost")
    assert seen.after == seen.before
    assert (seen.after["lease"]["owner"], seen.after["lease"]["epoch"]) == (successor, 2)

    (takeover,) = seen.takeovers
    assert (takeover["owner"], takeover["previous_owner"], takeover["epoch"]) == (successor, OWNER, 2)
    assert takeover["taken_at"] >= takeover["previous_expired_at"]
    assert [write["statement"] for write in seen.fenced] == [
        "lease.renew", "run.save_checkpoint", "operation.settle", "lease.release",
    ]  # fmt: skip
    for write in seen.fenced:
        assert (write["owner"], write["epoch"], write["reason"]) == (OWNER, 1, "lease_lost")
        assert (write["seen_owner"], write["seen_epoch"]) == (successor, 2)
    assert [write["evidence"] for write in seen.fenced] == [None, None, '{"http_status": 200}', None], "kept"


def test_a_lease_that_ran_out_is_not_revived_by_its_owner_even_when_nobody_took_it() -> None:
    seen = experiment(None)
    assert seen.answers == {"renew": "lease_lost", "save": "lease_lost", "settle": "lease_lost", "release": "applied"}
    assert (seen.after["run"], seen.after["operation"]) == (seen.before["run"], seen.before["operation"])
    assert (seen.after["lease"]["owner"], seen.after["lease"]["epoch"]) == (None, 1), "given back; the epoch stays"
    assert not seen.takeovers


@pytest.mark.parametrize(
    "write, successor, mutant",
    [
        ("renew", OWNER, "renew: no epoch"),
        ("save", OWNER, "save: no epoch"),
        ("settle", OWNER, "settle: no epoch"),
        ("release", OWNER, "release: no epoch"),
        ("renew", None, "renew: no expiry"),
        ("save", None, "save: no expiry"),
        ("settle", None, "settle: no expiry"),
    ],
)
def test_without_its_condition_the_woken_worker_writes(write: str, successor: str | None, mutant: str) -> None:
    seen = experiment(successor, (write,), mutant)
    assert seen.answers == {write: "applied"}
    assert seen.after != seen.before
    assert not seen.fenced


def test_a_consumers_worker_that_stood_still_past_its_lease_writes_nothing_when_it_goes_on(tenant: str) -> None:
    with Sink(held=True) as sink, Consumer():
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        late, late_epoch = one.owner, one.lease.epoch
        suspend(pid_of(late))
        try:
            assert sink.let_go() == 1
            wait_until(lambda: one.status == "succeeded", NOTICED_S, "delivered by another worker")
            before = one.rows()
            assert len(one.attempts) == 2
        finally:
            os.kill(pid_of(late), signal.SIGCONT)
        wait_until(lambda: any(w.statement == "operation.settle" for w in one.fenced_writes), SOON_S, "it was refused")
        assert sink.events == {one.webhook_id: 2}

    assert one.rows() == before
    refused = {write.statement: write for write in one.fenced_writes}
    settle = refused["operation.settle"]
    assert settle.reason == "lease_lost"
    assert (settle.owner, settle.epoch) == (late, late_epoch)
    assert settle.seen_epoch == before["lease"]["epoch"] > late_epoch
    assert settle.seen_status == "succeeded"
    assert settle.seen_revision == before["operation"]["revision"]
    assert settle.evidence is not None
    assert settle.evidence["http_status"] == 200, "the late answer is kept"
    assert settle.evidence["classification"] == "accepted"
    assert settle.evidence["attempt"] == 1

    first, second = one.attempts
    assert (first.number, first.owner, first.epoch, first.late) == (1, late, late_epoch, True)
    assert (first.classification, first.http_status) == ("accepted", 200)
    assert first.ended_at is not None
    assert (second.number, second.late, second.classification) == (2, False, "accepted")
    assert second.owner != late
    assert [takeover.previous_owner for takeover in one.takeovers] == [late]
