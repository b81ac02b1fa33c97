"""Answers that came too late to be written by who got them: kept, and believed where they prove something."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from types import TracebackType
from typing import Self

import pytest

from tests.receiver import Answer, Received, Receiver
from tests.support.consumer import Consumer, pid_of
from tests.support.deliveries import endpoint, events, submitted
from tests.support.programs import suspend
from tests.support.sink import Sink
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

TTL_MS = 10_000
NOTICED_S = TTL_MS / 1000 + 10


def patient() -> Consumer:
    """A consumer whose requests do not time out before their worker is paused, on a slow machine too."""
    return Consumer(RELAY_LEASE_TTL_MS=str(TTL_MS), RELAY_HTTP_TIMEOUT_MS="4000")


def test_an_acceptance_that_a_paused_worker_reports_late_settles_what_was_unknown(tenant: str) -> None:
    with Sink(held=True) as sink, patient():
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


class Pausing:
    """A receiver, and the delivery whose send number `attempt` it answers with `status` once its worker is paused.

    Sends before that are answered by nobody, those after it with 200.
    """

    def __init__(self, tenant: str, status: int, *, attempt: int = 1, **changes: object) -> None:
        self.attempt = attempt
        self._status = status
        self._arrived, self._paused = threading.Event(), threading.Event()
        self.receiver = Receiver(self._answer)
        self._tenant, self._changes = tenant, changes

    def __enter__(self) -> Self:
        self.receiver.__enter__()
        self.sweeps = Sweeps(self._tenant)
        endpoint(self._tenant, self.receiver.url, retry_jitter=0.0, **self._changes)
        (self.one,) = submitted(events(self._tenant))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._paused.set()
        self.receiver.__exit__(kind, error, trace)

    def report_late(self) -> None:
        """Pause the worker until its claim has expired, answered meanwhile; back when its report is on record."""
        assert self._arrived.wait(NOTICED_S)
        pid = pid_of(self.one.owner)
        suspend(pid)
        try:
            self._paused.set()
            wait_until(self._expired, NOTICED_S, "the reconciler found the claim")
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(self._reported, NOTICED_S, "the worker reported late")

    def _answer(self, request: Received) -> Answer:
        number = int(request.headers["relay-attempt"])
        if number < self.attempt:
            return Answer(hang=True)
        if number > self.attempt:
            return Answer(200)
        self._arrived.set()
        assert self._paused.wait(NOTICED_S)
        return Answer(self._status)

    def _expired(self) -> bool:
        return [each.classification for each in self.one.attempts][self.attempt - 1 :] == ["worker_lost"]

    def _reported(self) -> bool:
        return self.one.attempts[self.attempt - 1].late


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_refusal_that_a_paused_worker_reports_late_is_tried_again_by_schedule(tenant: str, idempotent: bool) -> None:
    """Had its worker not been paused it would have been the same: the receiver said no, and is asked again."""
    with patient(), Pausing(tenant, 404, idempotent=idempotent, retry_schedule=[600]) as late:
        late.report_late()
        wait_until(lambda: late.one.status == "prepared", NOTICED_S, "converged by the late evidence")
        now = late.one.operation
        assert (now.attempts, now.ambiguous) == (1, False)
        assert now.due_at is not None
        assert timedelta(seconds=590) < now.due_at - now.updated_at < timedelta(seconds=610)
        assert now.result is not None
        assert now.result["converged_by"] == "late evidence"
        assert len(late.receiver.requests) == 1


def test_what_was_refused_late_is_sent_again_and_delivered(tenant: str) -> None:
    with patient(), Pausing(tenant, 404, idempotent=False, retry_schedule=[1]) as late:
        late.report_late()
        wait_until(lambda: late.one.status == "succeeded", NOTICED_S, "sent again, and taken")
        assert [(each.http_status, each.late) for each in late.one.attempts] == [(404, True), (200, False)]


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_refused_late_has_failed_when_no_tries_are_left(tenant: str, idempotent: bool) -> None:
    with patient(), Pausing(tenant, 404, idempotent=idempotent, retry_schedule=[]) as late:
        late.report_late()
        wait_until(lambda: late.one.status == "failed_final", NOTICED_S, "converged by the late evidence")
        assert late.one.run.status == "failed"


def test_a_late_500_leaves_it_open_whether_the_receiver_acted(tenant: str) -> None:
    with patient(), Pausing(tenant, 500, idempotent=False, retry_schedule=[1, 1]) as late:
        late.report_late()
        late.sweeps.wait_for(2)
        assert late.one.status == "unknown"
        assert [(each.http_status, each.late) for each in late.one.attempts] == [(500, True)]
        assert len(late.receiver.requests) == 1


def test_a_late_refusal_of_the_second_send_says_nothing_about_the_first_whose_worker_is_gone(tenant: str) -> None:
    with patient(), Pausing(tenant, 404, attempt=2, idempotent=True, retry_schedule=[1, 600]) as late:
        late.receiver.wait_for(1)
        os.kill(pid_of(late.one.owner), signal.SIGKILL)
        late.report_late()
        late.sweeps.wait_for(2)
        assert late.one.status == "unknown"
        first, second = late.one.attempts
        assert (first.classification, first.ended_at) == ("worker_lost", None)
        assert (second.http_status, second.late) == (404, True)
