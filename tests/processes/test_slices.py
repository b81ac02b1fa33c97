"""A slice ends, and others go on: what it still waits for holds up nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from deliveries.dispatch import owner, slices
from deliveries.dispatch.listener import Listener
from deliveries.dispatch.stopping import STOP
from ledger.managers import operation
from tests.support.database import unguarded
from tests.support.deliveries import endpoint, events, submitted
from tests.support.sink import Sink

pytestmark = pytest.mark.usefixtures("emptied")


@dataclass
class Seen:
    """What was so when the slice handed over."""

    status: str
    slot: int | None


def test_a_slice_gives_its_place_away_before_it_waits_for_a_receiver_that_hangs(tenant: str, settings: Any) -> None:
    settings.RELAY_DISPATCHERS = 1
    seen: list[Seen] = []
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))

        def hand_over() -> None:
            with Listener(STOP.consumer, 1) as successor:
                seen.append(Seen(one.status, successor.slot))
            sink.wait_for(1)
            sink.let_go()

        def nothing() -> None:
            """No chores, and no bell to take down."""

        assert slices.work(chores=nothing, begun=nothing, hand_over=hand_over, seconds=0.5)

    assert seen == [Seen("dispatching", 0)], "in flight, and the slot free for the next"
    assert one.status == "succeeded", "what was in flight is settled all the same"
    assert one.lease.owner is None


def test_a_slice_that_finds_every_place_taken_ends_at_once(tenant: str, settings: Any) -> None:
    settings.RELAY_DISPATCHERS = 1

    def never() -> None:
        raise AssertionError("a slice without a slot does nothing")

    with Listener(STOP.consumer, 1) as taken:
        assert taken.slot == 0
        assert not slices.work(chores=never, begun=never, hand_over=never, seconds=30)


def test_a_slice_that_could_not_settle_what_it_sent_ends_its_session(tenant: str, settings: Any) -> None:
    """The next slice of this process would take that claim, of which it never heard, for one that was never sent."""
    settings.RELAY_DISPATCHERS = 1
    before = owner.current()
    with Sink(held=True) as sink:
        endpoint(tenant, sink.url, idempotent=False)
        (one,) = submitted(events(tenant))

        def hand_over() -> None:
            sink.wait_for(1)
            # Somebody writes the run by force, so that the settle meets a revision that it does not know.
            with unguarded(), connection.cursor() as cursor:
                cursor.execute("UPDATE ledger_run SET revision = revision + 1 WHERE run_id = %s", [one.run_id])
            sink.let_go()

        def nothing() -> None:
            """No chores, and no bell to take down."""

        assert slices.work(chores=nothing, begun=nothing, hand_over=hand_over, seconds=0.5)

    assert [write.reason for write in one.fenced_writes] == ["conflict"]
    assert (one.status, one.owner) == ("dispatching", before), "sent, and still claimed"
    assert owner.current() != before
    assert not operation.held_by(owner.current()), "nobody can give it back as unsent"
