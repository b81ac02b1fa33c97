"""F: a cancel while the operation is prepared, dispatching or unknown, with a consumer at work.

What is only prepared is never sent. The others may be with their receiver already: they are never called unexecuted,
their truth is still recorded, and they are not sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from deliveries.models import Endpoint
from ledger.managers import unknown
from ledger.outcome import Applied
from ledger.statements import in_transaction
from ledger.states import Decision
from tests.experiments.worker import Worker
from tests.support import deliveries, mutants
from tests.support.armed import RecordingSink
from tests.support.consumer import Consumer
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

LATER = datetime(2100, 1, 1, tzinfo=UTC)
SOON_S = 15.0
PATIENT = {"RELAY_HTTP_TIMEOUT_MS": "12000", "RELAY_LEASE_TTL_MS": "20000"}


@dataclass
class Seen:
    one: Watched
    when: str
    answer: dict[str, Any]
    then: str
    effects: list[str]
    arrivals: int


def experiment(state: str, mutant: str | None = None) -> Seen:
    """A delivery comes to be in that state, is cancelled, and gets every occasion to be sent (again)."""
    tenant = deliveries.tenant()
    patience = PATIENT if state == "dispatching" else {}
    with RecordingSink(held=True) as sink, Consumer(2, **patience, **mutants.environment(mutant)):
        sweeps = Sweeps(tenant)
        made, _ = endpoint(tenant, f"{sink.url}f", types=["invoice.*"])
        mine = Endpoint.objects.filter(pk=made.pk)
        if state == "prepared":
            mine.update(blocked_until=LATER)
        (one,) = submitted(events(tenant))
        with Worker("control-plane", one, mutant=mutant) as control:
            if state != "prepared":
                sink.wait_for(1)
                mine.update(blocked_until=LATER)  # What is due again waits until it is cancelled.
            wait_until(lambda: one.status == state, SOON_S, state)
            when = one.status
            answer = control.ask("cancel")
        then = one.status
        sink.let_go()
        if state == "dispatching" and mutant is None:
            wait_until(lambda: one.status == "succeeded", SOON_S, "its truth is recorded")
        mine.update(blocked_until=None)
        sweeps.wait_for(4)
        if mutant is not None and state == "prepared":
            wait_until(lambda: sink.requests, SOON_S, "sent")
        return Seen(one, when, answer, then, sink.effects.get("/f", []), len(sink.requests))


def test_what_is_prepared_is_cancelled_with_its_run_and_never_sent() -> None:
    seen = experiment("prepared")
    assert (seen.when, seen.answer["answer"], seen.then) == ("prepared", "applied", "cancelled")
    assert seen.arrivals == 0
    assert (seen.one.status, seen.one.run.status) == ("cancelled", "cancelled")
    assert (seen.one.operation.attempts, seen.one.attempts) == (0, [])


def test_what_is_dispatching_stays_so_and_its_acceptance_is_recorded() -> None:
    seen = experiment("dispatching")
    assert (seen.when, seen.answer["answer"], seen.then) == ("dispatching", "applied", "dispatching")
    assert (seen.one.status, seen.one.run.status) == ("succeeded", "cancelled")
    assert (seen.arrivals, seen.effects) == (1, [seen.one.operation_id])


def test_what_is_unknown_stays_so_is_not_sent_again_and_can_still_be_settled() -> None:
    seen = experiment("unknown")
    one = seen.one
    assert (seen.when, seen.answer["answer"], seen.then) == ("unknown", "applied", "unknown")
    assert (seen.arrivals, seen.effects) == (1, [one.operation_id])
    assert (one.status, one.run.status, one.pointer.due_at) == ("unknown", "cancelled", None)
    told = in_transaction(
        lambda: unknown.resolve(
            operation_key=one.operation_key,
            actor="user:sam",
            decision=Decision.SUCCEEDED,
            reason="It is in their books.",
            revision=one.operation.revision,
        )
    )
    assert isinstance(told, Applied)
    assert (one.status, one.run.status) == ("succeeded", "cancelled")


def test_if_a_cancel_left_what_is_prepared_and_a_claim_did_not_look_it_would_be_sent() -> None:
    assert experiment("prepared", "cancel: leaves what is prepared").effects


@pytest.mark.parametrize("state", ["dispatching", "unknown"])
def test_if_a_cancel_took_the_others_along_what_was_executed_would_be_called_cancelled(state: str) -> None:
    seen = experiment(state, f"cancel: {state} too")
    assert (seen.then, seen.one.status) == ("cancelled", "cancelled")
    assert seen.effects == [seen.one.operation_id]
