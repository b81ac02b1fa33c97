"""A token server that says strange things of how long its tokens live, or whose tokens are over before they are used.

Whatever it says: it is not asked without end, its deliveries do not sit in the dispatcher's hands, and no attempt is
spent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest

from deliveries.dispatch import token_server, tokens
from deliveries.dispatch.tokens import TokenDelayed, Tokens
from deliveries.endpoints import update
from deliveries.models import Endpoint
from tests.authorization.conftest import Deliver
from tests.authorization.servers import TOKEN, Guarded, TokenServer, guarded, oauth2
from tests.receiver import Answer, Received, Receiver
from tests.support.deliveries import endpoint, events, submitted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

UNSTATED = token_server.UNSTATED_LIFE_S - tokens.MARGIN_S
LONGEST = token_server.LONGEST_LIFE_S - tokens.MARGIN_S
LEAST = 5.0
SLACK_S = 0.05


@pytest.fixture
def useless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is ever used: each is over when it comes, where the server says so."""
    monkeypatch.setattr(tokens, "LEAST_USE_S", 0.0)
    monkeypatch.setattr(tokens, "UNUSED_S", 0.0)


def seconds_until_delayed(ours: Tokens, rows: Iterable[Endpoint]) -> tuple[float, float]:
    """How long these waited for a token that never came, and for how long they were then given back."""
    rows, began = list(rows), time.monotonic()

    def told() -> float | None:
        for row in rows:
            try:
                assert ours.ready(row) is None
            except TokenDelayed as delayed:
                return delayed.seconds
        return None

    pause = wait_until(told, 10, "the delivery is given back")
    assert pause is not None
    return time.monotonic() - began, pause


def apart(requests: list[Received]) -> list[float]:
    """The seconds between each request and the next."""
    moments = [request.at for request in requests]
    return [later - earlier for earlier, later in pairwise(moments)]


@pytest.mark.parametrize(
    ("said", "use_s"),
    [
        ("NaN", UNSTATED), ("Infinity", UNSTATED), ("-Infinity", UNSTATED), ("1e400", UNSTATED),
        ("9" * 400, UNSTATED), ("-" + "9" * 400, UNSTATED), ("9" * 5000, UNSTATED), ('"NaN"', UNSTATED),
        ("true", UNSTATED), ("null", UNSTATED), ("[60]", UNSTATED),
        ("-1", LEAST), ("0", LEAST), ("0.0001", LEAST), ("1e-300", LEAST), ('"1"', LEAST),
        ("100", 80.0), ('"100"', 80.0), ("3600", 3540.0), ("1e300", LONGEST),
    ],
    ids=lambda value: str(value)[:9],
)  # fmt: skip
def test_a_token_is_used_whatever_is_said_of_its_life(said: str, use_s: float, tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        server.answers.append(Answer(body=f'{{"access_token": "{TOKEN}", "expires_in": {said}}}'.encode()))
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        assert ours.ready(row) is None
        assert [wait_until(lambda: ours.ready(row), 10, "the token is there") for _ in range(3)] == [TOKEN] * 3
        entry = ours.entries[row.pk]
    assert entry.use_until - entry.fetched_at == pytest.approx(use_s)
    assert entry.refresh_at <= entry.use_until
    assert len(server.requests) == 1


@pytest.mark.parametrize("life", [0.0001, float("nan"), -1, 10**399], ids=["tiny", "NaN", "negative", "400 digits"])
def test_all_are_delivered_with_one_token_of_a_strange_life(life: float, tenant: str, deliver: Deliver) -> None:
    with TokenServer(life) as server, Guarded(server) as receiver:
        guarded(tenant, receiver, server.url, columns={"in_flight": 200, "retry_schedule": []})
        sent = submitted(events(tenant, 60))
        deliver(lambda: all(one.status == "succeeded" for one in sent), "all were delivered")
    assert {gap >= 1.0 - SLACK_S for gap in apart(server.requests)} <= {True}
    assert server.issued <= 3
    assert {one.operation.attempts for one in sent} == {1}


@pytest.mark.usefixtures("useless")
def test_fetches_that_lead_to_no_usable_token_hold_up_nobody_and_spend_no_attempt(
    tenant: str, deliver: Deliver
) -> None:
    with TokenServer(1e-9) as server, Receiver() as receiver:
        columns = {"types": ["odd"], "in_flight": 200, "retry_schedule": []}
        row = guarded(tenant, receiver, server.url, columns=columns)
        endpoint(tenant, receiver.url, types=["sound"])
        waiting = submitted(events(tenant, 60, type="odd"))
        sound = submitted(events(tenant, 5, type="sound"))
        deliver(lambda: Endpoint.objects.get(pk=row.pk).blocked_until, "the endpoint is paused")
        deliver(lambda: all(one.status == "succeeded" for one in sound), "the other endpoint was served")
        deliver(lambda: {one.status for one in waiting} == {"prepared"}, "those that waited are given back")
        assert len(server.requests) == 1
        assert {one.operation.attempts for one in waiting} == {0}
        assert len(receiver.requests) == len(sound)


@pytest.mark.usefixtures("useless")
def test_a_fetch_that_leads_to_no_usable_token_backs_off_as_a_failure_does(
    tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "BACKOFF_S", (1.2, 30.0))
    with TokenServer(1e-9) as server, Receiver() as receiver:
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        for pause_s in tokens.BACKOFF_S:
            _, told_s = seconds_until_delayed(ours, [row])
            assert pause_s - 1 < told_s <= pause_s
            wait_until(lambda: time.monotonic() >= ours.entries[row.pk].quiet_until or told_s > 2, 5, "it is over")  # noqa: B023
    assert len(server.requests) == 2


@pytest.mark.usefixtures("useless")
def test_patience_ends_however_often_a_fetch_succeeds(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BACKOFF_S", (0.0,))
    with TokenServer(1e-9) as server, Receiver() as receiver:
        row = guarded(tenant, receiver, server.url)
        waited, pause = seconds_until_delayed(Tokens(), [row])
    assert waited >= tokens.PATIENCE_S
    assert pause >= tokens.ASK_AGAIN_S
    assert 2 <= len(server.requests) <= waited / tokens.ASK_AGAIN_S + 1
    assert min(apart(server.requests)) >= tokens.ASK_AGAIN_S - SLACK_S


def test_deliveries_from_before_and_after_a_change_of_auth_do_not_wait_for_each_other_for_ever(tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        before = guarded(tenant, receiver, server.url)
        update(tenant, before.pk, {"auth": oauth2(server.url, audience="https://another")})
        after = Endpoint.objects.get(pk=before.pk)
        waited, _ = seconds_until_delayed(Tokens(), [before, after])
    assert waited >= tokens.PATIENCE_S
    assert len(server.requests) <= waited / tokens.ASK_AGAIN_S + 1


def test_a_receiver_that_refuses_token_after_token_has_at_most_one_fetched_in_a_second(
    tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "RENEW_S", 0.0)
    with TokenServer() as server, Receiver() as receiver:
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()

        def refused_again() -> bool:
            if ours.ready(row) is not None:
                ours.forget(row, time.monotonic())
            return len(server.requests) >= 3

        wait_until(refused_again, 10, "three were fetched")
    assert min(apart(server.requests)) >= tokens.ASK_AGAIN_S - SLACK_S


def test_a_token_that_was_waited_for_is_used_although_its_time_is_over(
    tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PATIENCE_S", 0.1)
    monkeypatch.setattr(tokens, "LEAST_USE_S", 0.01)
    with TokenServer() as server, Receiver() as receiver:
        body = f'{{"access_token": "{TOKEN}", "expires_in": 0.01}}'.encode()
        server.answers.append(Answer(delay=0.5, body=body))
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        seconds_until_delayed(ours, [row])
        entry = ours.entries[row.pk]
        wait_until(lambda: entry.token and time.monotonic() > entry.use_until, 10, "its time is over")
        assert ours.ready(row) == TOKEN
        assert [ours.ready(row), ours.ready(row)] == [None, None], "once only: after that it is as old as it is"
    assert entry.failures == 0
