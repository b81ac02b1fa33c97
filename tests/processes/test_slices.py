"""A slice ends, and others go on: what it still waits for holds up nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from deliveries.dispatch import slices
from deliveries.dispatch.listener import Listener
from deliveries.dispatch.stopping import STOP
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
