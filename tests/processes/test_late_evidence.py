"""Answers that came too late to be written by who got them: kept, and believed where they prove something."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.receiver import Answer, Received, Receiver
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import endpoint, events, submitted
from tests.support.programs import suspend
from tests.support.sink import Sink
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")


def test_an_acceptance_that_a_paused_worker_reports_late_settles_what_was_unknown(tenant: str) -> None:
    with Sink(held=True) as sink, Consumer():
        sweeps = Sweeps(tenant)
        endpoint(tenant, sink.url, idempotent=False)
        (one,) = submitted(events(tenant))
        sink.wait_for(1)
        late, late_epoch = one.owner, one.lease.epoch
        suspend(pid_of(late))
        try:
            assert sink.let_go() == 1
            wait_until(lambda: one.status == "unknown", NOTICED_S, "the reconciler found the claim")
            sweeps.wait_for(2)
            assert one.status == "unknown", "nothing proves anything yet, and nothing is sent again"
            (lost,) = one.attempts
            assert (lost.classification, lost.ended_at) == ("worker_lost", None)
        finally:
            os.kill(pid_of(late), signal.SIGCONT)
        wait_until(lambda: one.status == "succeeded", NOTICED_S, "converged by the late evidence")

    assert sink.events == {one.webhook_id: 1}
    (attempt,) = one.attempts
    assert (attempt.late, attempt.classification, attempt.http_status) == (True, "accepted", 200)
    assert (attempt.owner, attempt.epoch) == (late, late_epoch)
    digest = bytes(one.operation.request_digest).hex()
    assert attempt.evidence is not None
    assert attempt.evidence["request_digest"] == digest
    settle = next(write for write in one.fenced_writes if write.statement == "operation.settle")
    assert (settle.reason, settle.owner, settle.epoch) == ("lease_lost", late, late_epoch)
    assert settle.evidence is not None
    assert settle.evidence["request_digest"] == digest
    result = one.operation.result
    assert result is not None
    assert result["converged_by"] == "late evidence"
    assert result["evidence"] == {
        "attempt": 1, "epoch": late_epoch, "owner": late, "http_status": 200, "request_digest": digest,
    }  # fmt: skip
    assert one.run.status == "succeeded"
    assert one.lease.owner is None
    assert one.lease.epoch > late_epoch


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_refusal_that_a_paused_worker_reports_late_is_tried_again_by_schedule(tenant: str, idempotent: bool) -> None:
    """Had its worker not been paused it would have been the same: the receiver said no, and is asked again."""
    pausing, paused = threading.Event(), threading.Event()

    def answer(request: Received) -> Answer:
        if request.headers["relay-attempt"] != "1":
            return Answer(200)
        pausing.set()
        assert paused.wait(NOTICED_S)
        return Answer(404)

    with Receiver(answer) as receiver, Consumer():
        endpoint(tenant, receiver.url, idempotent=idempotent, retry_schedule=[1, 60], retry_jitter=0)
        (one,) = submitted(events(tenant))
        assert pausing.wait(NOTICED_S)
        late = one.owner
        suspend(pid_of(late))
        try:
            paused.set()
            wait_until(lambda: one.status == "unknown", NOTICED_S, "the reconciler found the claim")
        finally:
            os.kill(pid_of(late), signal.SIGCONT)
        wait_until(lambda: one.status == "succeeded", NOTICED_S, "refused late, sent again, and taken")
    assert one.attempts[-1].http_status == 200
    assert next(attempt for attempt in one.attempts if attempt.number == 1).late
