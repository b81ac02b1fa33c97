"""A delivery that is the end of every worker that sends it is not sent for ever."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest

from ledger.managers import unknown
from ledger.outcome import Applied
from ledger.states import Decision
from tests.api.rows import caller
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, endpoint, events, submitted, succeeded
from tests.support.sink import Sink
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

LOSSES = 2


def test_what_kills_its_worker_each_time_is_quarantined_until_a_person_sends_it_again(
    tenant: str, settings: Any
) -> None:
    settings.RELAY_POISON_LOSSES = LOSSES  # for what this process shows
    with Sink(held=True) as sink, Consumer(RELAY_POISON_LOSSES=str(LOSSES)):
        sweeps = Sweeps(tenant)
        endpoint(tenant, sink.url)
        (one,) = submitted(events(tenant))
        for sent in range(1, LOSSES + 1):
            sink.wait_for(sent, 2 * NOTICED_S)
            os.kill(pid_of(one.owner), signal.SIGKILL)
            wait_until(partial(_lost, one, sent), 2 * NOTICED_S, "the loss was counted")
        sweeps.wait_for(3)
        assert len(sink.requests) == LOSSES, "nothing is sent any more"
        now = one.operation
        assert (now.status, now.due_at, now.dispatch_owner, now.losses) == ("unknown", None, None, LOSSES)
        assert [attempt.classification for attempt in one.attempts] == ["worker_lost"] * LOSSES

        shown = caller(tenant=tenant).get(f"/v1/operations/{one.operation_id}").json()
        assert (shown["quarantined"], shown["losses"], shown["status"]) == (True, LOSSES, "unknown")

        answer = unknown.resolve(
            operation_key=one.operation_key,
            actor="a person",
            decision=Decision.RETRY,
            reason="the worker was given more memory",
            revision=now.revision,
        )
        assert isinstance(answer, Applied)
        sink.wait_for(LOSSES + 1, 2 * NOTICED_S)
        assert sink.let_go() >= 1
        wait_until(partial(succeeded, one), NOTICED_S, "delivered")

    assert sink.events == {one.webhook_id: LOSSES + 1}
    assert one.operation.losses == 0


def _lost(one: Watched, times: int) -> bool:
    return one.operation.losses == times
