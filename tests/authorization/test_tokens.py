"""OAuth 2 client credentials, from a real token server to a real receiver that refuses what it did not give out."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from deliveries.dispatch import token_server, tokens
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.tokens import TokenDelayed, TokenRefused, Tokens
from deliveries.endpoints import update
from deliveries.models import Endpoint
from tests.authorization.conftest import Deliver
from tests.authorization.servers import (
    CLIENT_SECRET,
    TOKEN,
    Guarded,
    TokenServer,
    error,
    guarded,
    oauth2,
    secrets_of,
)
from tests.receiver import Answer, Receiver
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.waiting import wait_until
from tests.transports import closed_port

pytestmark = pytest.mark.usefixtures("emptied")


def numbers(one: Watched) -> list[tuple[int, int | None]]:
    return [(attempt.number, attempt.http_status) for attempt in one.attempts]


@pytest.mark.parametrize("style", ["header", "body"])
def test_one_token_is_fetched_and_used_for_every_delivery(style: str, tenant: str, deliver: Deliver) -> None:
    with TokenServer() as server, Guarded(server) as receiver:
        guarded(tenant, receiver, server.url, scopes=["a", "b"], audience="https://api", auth_style=style)
        sent = submitted(events(tenant, 20))
        deliver(lambda: all(one.status == "succeeded" for one in sent), "all were delivered")
    (form,) = server.forms
    assert form["scope"] == ["a b"]
    assert form["audience"] == ["https://api"]
    assert ("client_id" in form) == (style == "body")
    assert set(receiver.tokens) == {f"{TOKEN}-1"}
    assert [numbers(one) for one in sent] == [[(1, 204)]] * 20
    assert not secrets_of(repr([(one.rows(), [vars(attempt) for attempt in one.attempts]) for one in sent]))


def test_a_token_is_renewed_before_it_ends(tenant: str, deliver: Deliver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LEAST_USE_S", 0.5)
    with TokenServer(life_s="1") as server, Guarded(server) as receiver:
        guarded(tenant, receiver, server.url)
        for _ in range(2):
            (one,) = submitted(events(tenant))
            deliver(lambda: one.status == "succeeded", "it was delivered")  # noqa: B023 - asked before the next turn
            entry = next(iter(tokens.ready.__self__.entries.values()))  # type: ignore[attr-defined]
            wait_until(lambda: time.monotonic() > entry.use_until, 5, "its time is over")  # noqa: B023
    assert receiver.tokens == [f"{TOKEN}-1", f"{TOKEN}-2"]


def test_after_a_401_the_next_attempt_follows_at_once_with_a_new_token(tenant: str, deliver: Deliver) -> None:
    with TokenServer() as server, Guarded(server) as receiver:
        guarded(tenant, receiver, server.url, columns={"retry_schedule": [3600]})
        (first,) = submitted(events(tenant))
        deliver(lambda: first.status == "succeeded", "it was delivered")
        server.revoke()
        (second,) = submitted(events(tenant))
        deliver(lambda: second.status == "succeeded", "it was delivered with another token, and not in an hour")
    assert numbers(second) == [(1, 401), (2, 204)]
    assert receiver.tokens == [f"{TOKEN}-1", f"{TOKEN}-1", f"{TOKEN}-2"]
    assert server.issued == 2


def test_a_second_401_goes_by_schedule(tenant: str, deliver: Deliver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "RENEW_S", 0.0)  # as when another process, with a token of its own, made the second
    with TokenServer() as server, Receiver(lambda _: Answer(401)) as receiver:
        guarded(tenant, receiver, server.url, columns={"retry_schedule": [3600, 3600, 3600]})
        (one,) = submitted(events(tenant))
        deliver(lambda: len(one.attempts) == 2, "the second attempt is on record, and not in an hour")
        due_at = one.pointer.due_at
        assert due_at is not None
        assert (due_at - datetime.now(UTC)).total_seconds() > 3000
    assert numbers(one) == [(1, 401), (2, 401)]
    assert len({request.headers["authorization"] for request in receiver.requests}) == 2


def test_a_receiver_that_refuses_every_token_does_not_have_one_fetched_each_time(tenant: str, deliver: Deliver) -> None:
    with TokenServer() as server, Receiver(lambda _: Answer(401)) as receiver:
        guarded(tenant, receiver, server.url, columns={"retry_schedule": [3600]})
        for _ in range(5):
            (one,) = submitted(events(tenant))
            deliver(lambda: one.attempts, "it was tried")  # noqa: B023 - asked before the next turn
    assert server.issued <= 2


def test_an_endpoint_with_one_attempt_only_is_not_sent_to_again_after_a_401(tenant: str, deliver: Deliver) -> None:
    with TokenServer() as server, Receiver(lambda _: Answer(401)) as receiver:
        guarded(tenant, receiver, server.url, columns={"retry_schedule": []})
        (one,) = submitted(events(tenant))
        deliver(lambda: one.status == "failed_final", "it failed")
    assert numbers(one) == [(1, 401)]


def test_a_token_server_that_is_away_costs_no_attempt_and_pauses_the_endpoint(tenant: str, deliver: Deliver) -> None:
    with Receiver() as receiver:
        row = guarded(tenant, receiver, f"http://127.0.0.1:{closed_port()}/")
        (one,) = submitted(events(tenant))
        deliver(lambda: Endpoint.objects.get(pk=row.pk).blocked_until, "the endpoint is paused")
    assert (one.status, one.operation.attempts, one.attempts) == ("prepared", 0, [])
    assert not receiver.requests


def test_a_change_of_auth_ends_the_pause_and_its_token_is_fetched_at_once(tenant: str, deliver: Deliver) -> None:
    with TokenServer() as server, Guarded(server) as receiver:
        row = guarded(tenant, receiver, f"http://127.0.0.1:{closed_port()}/")
        (one,) = submitted(events(tenant))
        deliver(lambda: Endpoint.objects.get(pk=row.pk).blocked_until, "the endpoint is paused")
        update(tenant, row.pk, {"auth": oauth2(server.url)})
        deliver(lambda: one.status == "succeeded", "it was delivered")
    assert numbers(one) == [(1, 204)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(401, "invalid_client"), "The token server answered 401 (invalid_client)."),
        (error(400, "hunter what!"), "The token server answered 400."),
        (Answer(302, headers=(("Location", "http://127.0.0.1:1/"),)), "The token server answered 302."),
        (Answer(body=b"<html>hunter</html>"), "The token server answered 200 without an access token."),
        (Answer(body=b'{"access_token": "a b"}'), "is longer than 8192 characters, or not printable ASCII."),
        (Answer(body=b'{"access_token": "a\\r\\nX-B: b"}'), "is longer than 8192 characters, or not printable ASCII."),
        (Answer(body=b'{"access_token": "hunter", "token_type": "mac"}'), "of a type other than bearer."),
    ],
    ids=["refused", "odd code", "redirect", "no JSON", "space", "line break", "mac"],
)
def test_a_refusal_is_reported_as_not_sent_in_a_sentence(
    answer: Answer, words: str, tenant: str, deliver: Deliver
) -> None:
    with TokenServer() as server, Receiver() as receiver:
        server.answers.append(answer)
        guarded(tenant, receiver, server.url)
        (one,) = submitted(events(tenant))
        deliver(lambda: one.attempts, "the attempt is on record")
    assert not receiver.requests
    assert one.attempts[0].verdict == "not_sent"
    assert one.attempts[0].error.startswith("No access token: ")
    assert one.attempts[0].error.endswith(words)
    assert not secrets_of(one.attempts[0].error)


def test_a_slow_token_server_holds_up_nobody_else(tenant: str, engine: Engine, deliver: Deliver) -> None:
    with TokenServer() as slow, Receiver() as receiver:
        slow.answers.append(Answer(hang=True))
        guarded(tenant, receiver, slow.url, columns={"types": ["slow"]})
        endpoint(tenant, receiver.url, types=["quick"])
        (waiting,) = submitted(events(tenant, type="slow"))
        deliver(lambda: slow.requests, "the token server was asked")
        (quick,) = submitted(events(tenant, type="quick"))
        deliver(lambda: quick.status == "succeeded", "the other endpoint got its delivery")
        assert waiting.status == "dispatching"
        deliver(lambda: waiting.status == "prepared", "it is given back when the token takes long")
        assert waiting.operation.attempts == 0
    assert len(receiver.requests) == 1


def test_a_token_server_that_stays_away_is_reported_after_a_while(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "BACKOFF_S", (0.05,))
    monkeypatch.setattr(tokens, "GIVE_UP_S", 0.5)
    ours = Tokens()
    with Receiver() as receiver:
        row = guarded(tenant, receiver, f"http://127.0.0.1:{closed_port()}/")

    def told() -> str:
        try:
            assert ours.ready(row) is None
        except TokenDelayed:
            return ""
        except TokenRefused as refused:
            return str(refused)
        return ""

    sentence = wait_until(told, 10, "it is refused")
    assert sentence.startswith("No access token: The token server could not be asked. ")


def test_retry_after_of_a_busy_token_server_is_heeded(tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        server.answers.append(error(503, "busy", ("Retry-After", "120")))
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        assert ours.ready(row) is None
        wait_until(lambda: ours.entries[row.pk].failures, 10, "it has answered")
        with pytest.raises(TokenDelayed) as delayed:
            ours.ready(row)
    assert 100 < delayed.value.seconds <= 120
    assert len(server.requests) == 1


def test_many_who_ask_at_once_have_one_token_fetched(tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        server.answers.append(Answer(503, delay=0.3))
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        threads = [threading.Thread(target=ours.ready, args=(row,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        wait_until(lambda: ours.entries[row.pk].failures, 10, "it has answered")
    assert len(server.requests) == 1


def test_a_token_server_at_a_forbidden_address_is_not_called(tenant: str, settings: Any) -> None:
    with TokenServer() as server, Receiver() as receiver:
        row = guarded(tenant, receiver, server.url)
        settings.RELAY_EGRESS_ALLOW = ()  # as if a name had come to mean an address of ours
        ours = Tokens()
        assert ours.ready(row) is None
        wait_until(lambda: ours.entries[row.pk].failures, 10, "it was given up")
    assert not server.requests


@pytest.mark.parametrize("length", [20_000, 2_000_000])
def test_an_endless_answer_is_not_read_to_its_end(length: int, tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        server.answers.append(Answer(body=b'{"access_token": "' + b"x" * length + b'"}'))
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        assert ours.ready(row) is None
        wait_until(lambda: ours.entries[row.pk].failures, 10, "it was given up")
        trouble = ours.entries[row.pk].trouble
    assert trouble is not None
    assert trouble.sentence == "The token server's answer was cut short, or longer than 16 KiB."


def test_nothing_that_holds_a_token_shows_it(tenant: str) -> None:
    with TokenServer() as server, Receiver() as receiver:
        row = guarded(tenant, receiver, server.url)
        ours = Tokens()
        ours.ready(row)
        wait_until(lambda: ours.entries[row.pk].token, 10, "the token is there")
    assert not secrets_of(repr((ours, ours.entries[row.pk], token_server.ask(row.auth or {}, CLIENT_SECRET))))
