"""Receivers that say nothing to a delivery and are asked afterwards, by a real consumer, over real HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings

from deliveries import tasks
from deliveries.models import Acknowledgement
from tests.receiver import Answer, Received, Receiver
from tests.support.deliveries import Watched, endpoint, events, submitted, succeeded
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("consumer")

SOON_S = 20.0


class Silent(Receiver):
    """Takes every delivery and says nothing, but for those numbered in `accepts`; answers questions with `says`."""

    def __init__(self, *says: Answer, accepts: tuple[int, ...] = ()) -> None:
        super().__init__(self._reply)
        self._says = list(says)
        self._accepts = accepts

    def _reply(self, received: Received) -> Answer:
        if received.method == "POST":
            return Answer(200) if len(self.posts) in self._accepts else Answer(hang=True)
        return self._says[min(len(self.questions), len(self._says)) - 1]

    @property
    def posts(self) -> list[Received]:
        return [one for one in list(self.requests) if one.method == "POST"]

    @property
    def questions(self) -> list[Received]:
        return [one for one in list(self.requests) if one.method == "GET"]


def says(outcome: str, **more: Any) -> Answer:
    return Answer(body=json.dumps({"outcome": outcome, **more}).encode())


@contextmanager
def delivery_to(tenant: str, receiver: Silent) -> Iterator[Watched]:
    """A delivery to a receiver that drops no duplicates and can be asked."""
    with receiver:
        endpoint(tenant, f"{receiver.url}hook", idempotent=False, query_url=f"{receiver.url}ask")
        (one,) = submitted(events(tenant))
        yield one


def words(one: Watched) -> list[Acknowledgement]:
    return list(Acknowledgement.objects.filter(operation_key=one.operation_key).order_by("acknowledgement_id"))


def test_what_the_receiver_processed_is_succeeded_without_a_second_send(tenant: str) -> None:
    receiver = Silent(says("processed", remote_id="booking-7"))
    with delivery_to(tenant, receiver) as one:
        wait_until(lambda: succeeded(one), SOON_S, "settled by the receiver's word")
        assert len(receiver.posts) == len(receiver.questions) == 1
    assert one.operation.remote_id == "booking-7"
    assert one.run.status == "succeeded"
    (word,) = words(one)
    assert (word.source, word.said, word.actor, word.http_status) == ("query", "processed", "query", 200)
    assert [attempt.verdict for attempt in one.attempts] == ["unknown"]


def test_what_the_receiver_rejected_is_failed_and_not_sent_again(tenant: str) -> None:
    receiver = Silent(says("rejected"))
    with delivery_to(tenant, receiver) as one:
        wait_until(lambda: one.status == "failed_final", SOON_S, "failed by the receiver's word")
        assert len(receiver.posts) == 1
    assert one.run.status == "failed"


def test_what_never_arrived_is_sent_again_once_and_delivered(tenant: str) -> None:
    receiver = Silent(says("never_arrived"), accepts=(2,))
    with delivery_to(tenant, receiver) as one:
        wait_until(lambda: succeeded(one), SOON_S, "sent again and accepted")
        assert len(receiver.posts) == 2
        assert len({post.headers["idempotency-key"] for post in receiver.posts}) == 1
    assert [attempt.verdict for attempt in one.attempts] == ["unknown", "answered"]
    assert [word.said for word in words(one)] == ["never_arrived"]


def test_a_receiver_that_does_not_know_is_asked_again_by_schedule_until_it_does(tenant: str) -> None:
    receiver = Silent(says("unknown"), says("processed"))
    with delivery_to(tenant, receiver) as one:
        wait_until(lambda: words(one), SOON_S, "asked once")
        assert one.status == "unknown"
        wait_until(lambda: succeeded(one), SOON_S + 10, "asked again")
    first, second = words(one)
    assert (first.said, second.said) == ("unknown", "processed")
    assert 10 <= (second.received_at - first.received_at).total_seconds() < 15
    assert len(receiver.posts) == 1


def test_nonsense_leaves_it_unknown_with_the_reason(tenant: str) -> None:
    receiver = Silent(Answer(body=b"<html>processed</html>"))
    with delivery_to(tenant, receiver) as one:
        (word,) = wait_until(lambda: words(one), SOON_S, "asked")
        assert (word.said, word.detail, word.http_status) == ("unknown", "The answer is not JSON.", 200)
        assert one.status == "unknown"
        assert len(receiver.posts) == 1


def test_a_receiver_whose_answers_hang_holds_up_neither_deliveries_nor_the_questions_to_others(tenant: str) -> None:
    dumb, fine = Silent(Answer(hang=True)), Silent(says("processed"))
    with dumb, fine, Sink() as sink:
        for receiver in (dumb, fine):
            endpoint(
                tenant,
                f"{receiver.url}hook",
                idempotent=False,
                query_url=f"{receiver.url}ask",
                types=["stuck" if receiver is dumb else "asked"],
            )
        endpoint(tenant, sink.url, types=["plain"])
        stuck = submitted(events(tenant, 12, type="stuck"))
        wait_until(lambda: dumb.questions, SOON_S, "a question that is not answered")
        (asked,) = submitted(events(tenant, type="asked"))
        begun = time.monotonic()
        plain = submitted(events(tenant, 20, type="plain"))
        wait_until(lambda: all(map(succeeded, plain)), SOON_S, "the others' deliveries")
        assert time.monotonic() - begun < 5
        wait_until(lambda: succeeded(asked), SOON_S, "the other receiver was asked")
        assert {one.status for one in stuck} == {"unknown"}
        wait_until(lambda: any(words(one) for one in stuck), SOON_S, "the silence is on record")
        kept = [word for one in stuck for word in words(one)]
    assert {word.said for word in kept} == {"unknown"}
    assert all(word.http_status is None and word.detail.startswith("No complete answer") for word in kept)


def test_a_lost_bell_is_rung_again(tenant: str) -> None:
    """The task behind the bell that hangs was lost with its worker: a minute's sweep takes the bell down."""
    receiver = Silent(says("processed"))
    settings.HUEY.storage.put_data(tasks.ASK_BELL, b"of a task that is gone")
    with delivery_to(tenant, receiver) as one:
        wait_until(lambda: succeeded(one), 75, "asked all the same")
