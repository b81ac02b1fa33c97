"""`POST /v1/operations/{id}/query`: a person has the receiver asked what became of an operation."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from django.db import connection
from standardwebhooks import Webhook, WebhookVerificationError

from deliveries import querying, signing
from deliveries.endpoints import QUERY_URL_LENGTH
from deliveries.models import Acknowledgement, Endpoint, Said, Scope
from deliveries.queries import ASKING
from ledger.managers.operation import Proof
from tests.api import rows
from tests.api.rows import Caller
from tests.receiver import Answer, Received, Receiver
from tests.support.database import unguarded

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def says(**answer: Any) -> Answer:
    return Answer(body=json.dumps(answer).encode())


def unknown(by: Caller, query_url: str | None, **capability: Any) -> str:
    """The id of an unknown operation whose endpoint can be asked at `query_url`."""
    capability = {"idempotent": False, "query_url": query_url, **capability}
    target = rows.endpoint(by, capability=capability, secret=SECRET)
    (delivery,) = (one for one in rows.deliveries_of(by, rows.event(by)) if one["endpoint_id"] == target)
    rows.settle(rows.claim(delivery["operation_id"]), Proof.AMBIGUOUS)
    return str(delivery["operation_id"])


def ask(by: Caller, operation_id: str) -> Any:
    return by.post(f"/v1/operations/{operation_id}/query")


def words(operation_id: str) -> list[Acknowledgement]:
    _, run_id, _, _ = operation_id.split("/")
    return list(Acknowledgement.objects.filter(run_id=run_id).order_by("acknowledgement_id"))


def verified(headers: dict[str, str]) -> Any:
    """What is asked, as a receiver reads it with the public library of Standard Webhooks."""
    key = "whsec_" + b64encode(hmac.digest(signing.secret_bytes(SECRET), b"relay query", "sha256")).decode()
    return Webhook(key).verify(headers["relay-question"], headers)


def status(by: Caller, operation_id: str) -> str:
    return str(by.get(f"/v1/operations/{operation_id}").json()["status"])


def test_the_question_names_the_operation_in_what_is_signed(mine: Caller) -> None:
    with Receiver(lambda _: says(outcome="unknown")) as receiver:
        operation_id = unknown(mine, f"{receiver.url}ask?key=a%2Fb&operation=mine&empty=")
        ask(mine, operation_id)
    (asked,) = receiver.requests
    shown = mine.get(f"/v1/operations/{operation_id}").json()
    parts = urlsplit(asked.path)
    assert (asked.method, parts.path, asked.body) == ("GET", "/ask", b"")
    assert parts.query.startswith("key=a%2Fb&empty=&")
    assert parse_qs(parts.query) == {
        "key": ["a/b"],
        "operation": [operation_id],
        "event": [shown["event_id"]],
        "run": [shown["run_id"]],
    }
    assert asked.headers["user-agent"].startswith("Relay")
    assert verified(asked.headers) == {"operation": operation_id, "run": shown["run_id"], "event": shown["event_id"]}
    assert asked.headers["webhook-id"].startswith("qry_")
    assert not {"idempotency-key", "relay-run-id"} & set(asked.headers), "nothing that could be trusted unsigned"


def test_a_question_is_worth_nothing_about_another_operation_nor_as_a_delivery_nor_the_other_way_round(
    mine: Caller,
) -> None:
    with Receiver(lambda _: says(outcome="unknown")) as receiver:
        operation_id = unknown(mine, receiver.url)
        ask(mine, operation_id)
        ask(mine, operation_id)
    asked, again = receiver.requests
    assert asked.headers["webhook-id"] != again.headers["webhook-id"], "who drops duplicates by it still answers"
    question = asked.headers["relay-question"]
    for name, value in (
        ("relay-question", question.replace("/deliver/1", "/deliver/2")),
        ("webhook-id", again.headers["webhook-id"]),
        ("webhook-timestamp", str(int(asked.headers["webhook-timestamp"]) - 1)),
    ):
        with pytest.raises(WebhookVerificationError):
            verified({**asked.headers, name: value})
    for body in (question, ""):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body, asked.headers)
    now = datetime.now(UTC)
    delivered = {
        "webhook-id": "evt_1", "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign("evt_1", now, question), "relay-question": question,
    }  # fmt: skip
    with pytest.raises(WebhookVerificationError):
        verified(delivered)


@pytest.mark.parametrize(
    ("answer", "then"), [("processed", "succeeded"), ("rejected", "failed_final"), ("never_arrived", "prepared")]
)
def test_an_authoritative_answer_settles_it(mine: Caller, answer: str, then: str) -> None:
    def reply(received: Received) -> Answer:
        return says(outcome=answer, remote_id="booking-7", operation=verified(received.headers)["operation"])

    with Receiver(reply) as receiver:
        operation_id = unknown(mine, receiver.url)
        answered = ask(mine, operation_id)
    assert answered.status_code == 200, answered.content
    said = answered.json()
    assert (said["said"], said["operation"]["status"]) == (answer, then)
    assert said["detail"].startswith("The receiver says that it")
    (word,) = words(operation_id)
    assert (word.source, word.said, word.remote_id, word.http_status) == ("query", answer, "booking-7", 200)
    assert word.actor.startswith("a test (key_")
    if answer == "processed":
        assert said["operation"]["remote_id"] == "booking-7"


NONSENSE: list[tuple[Answer, str]] = [
    (says(outcome="unknown"), "does not know"),
    (Answer(404), "answered 404"),
    (Answer(500, body=b'{"outcome": "processed"}'), "answered 500"),
    (Answer(204), "answered 204"),
    (Answer(302, (("Location", "/elsewhere"),)), "answered 302"),
    (Answer(body=b""), "not JSON"),
    (Answer(body=b"<html>processed</html>"), "not JSON"),
    (Answer(body=b'{"outcome": "processed"'), "not JSON"),
    (Answer(body=b'{"outcome": "rejected", "outcome": "processed"}'), "not JSON"),
    (Answer(body=b"[" * 16_000), "not JSON"),
    (Answer(body=b'{"outcome": "\xff"}'), "not JSON"),
    (Answer(body=b'["processed"]'), "no outcome"),
    (says(outcome="maybe"), "no outcome"),
    (says(outcome=["processed"]), "no outcome"),
    (says(outcome=None), "no outcome"),
    (says(outcome="processed", operation="default/x/deliver/1"), "another operation"),
    (says(outcome="processed", remote_id=7), "remote_id"),
    (says(outcome="processed", remote_id="x" * 257), "remote_id"),
    (says(outcome="processed", padding="x" * 20_000), "16 KiB"),
    (Answer(raw=b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"outcome": "processed"}', close=True), "cut short"),
    (Answer(close_before_answer=True), "closed the connection"),
    (Answer(hang=True), "No complete answer"),
]


@pytest.mark.parametrize(("answer", "reason"), NONSENSE, ids=[f"{at}-{one[1]}" for at, one in enumerate(NONSENSE)])
def test_anything_else_proves_nothing_and_its_reason_is_kept(mine: Caller, answer: Answer, reason: str) -> None:
    with Receiver(lambda _: answer) as receiver:
        operation_id = unknown(mine, receiver.url)
        Endpoint.objects.update(timeout_ms=400)
        before = mine.get(f"/v1/operations/{operation_id}").json()
        answered = ask(mine, operation_id)
        assert len(receiver.requests) == 1
    assert answered.status_code == 200, answered.content
    assert answered.json()["said"] == "unknown"
    assert reason in answered.json()["detail"]
    (word,) = words(operation_id)
    assert (word.said, word.detail) == ("unknown", answered.json()["detail"])
    now = answered.json()["operation"]
    assert (now["status"], now["revision"]) == ("unknown", before["revision"])


def test_a_remote_id_that_the_database_cannot_hold_is_kept_as_far_as_it_can(mine: Caller) -> None:
    with Receiver(lambda _: Answer(body=b'{"outcome": "processed", "remote_id": "a\\u0000b\\ud800"}')) as receiver:
        operation_id = unknown(mine, receiver.url)
        assert ask(mine, operation_id).json()["operation"]["status"] == "succeeded"
    (word,) = words(operation_id)
    assert word.remote_id is not None
    assert word.remote_id.startswith("a")


def test_what_is_settled_or_being_sent_is_not_asked_about_and_shown_as_it_is(mine: Caller) -> None:
    with Receiver() as receiver:
        target = rows.endpoint(mine, capability={"idempotent": False, "query_url": receiver.url})
        (delivery,) = (one for one in rows.deliveries_of(mine, rows.event(mine)) if one["endpoint_id"] == target)
        operation_id = delivery["operation_id"]
        waiting = ask(mine, operation_id)
        claimed = rows.claim(operation_id)
        sending = ask(mine, operation_id)
        rows.settle(claimed, Proof.ACCEPTED)
        done = ask(mine, operation_id)
        assert receiver.connections == 0
    for answer, reason, now in (
        (waiting, "not_unknown", "prepared"),
        (sending, "claimed", "dispatching"),
        (done, "not_unknown", "succeeded"),
    ):
        assert answer.status_code == 409, answer.content
        assert (answer.json()["reason"], answer.json()["current"]["status"]) == (reason, now)
        assert f"It is {now} at revision" in answer.json()["detail"]
    assert words(operation_id) == []


def test_an_unknown_operation_that_is_sent_again_at_this_moment_is_not_asked_about(mine: Caller) -> None:
    with Receiver() as receiver:
        operation_id = unknown(mine, receiver.url)
        seen = mine.get(f"/v1/operations/{operation_id}").json()["revision"]
        mine.post(f"/v1/operations/{operation_id}/resolve", {"decision": "retry", "reason": "Safe.", "revision": seen})
        rows.claim(operation_id)
        answer = ask(mine, operation_id)
        assert receiver.connections == 0
    assert (answer.status_code, answer.json()["reason"]) == (409, "claimed")
    assert answer.json()["current"]["status"] == "unknown"


def test_that_nothing_arrived_is_not_believed_about_a_send_that_was_begun_meanwhile(mine: Caller) -> None:
    operation_id = unknown(mine, "http://127.0.0.1:9/")
    key = rows._key(operation_id)
    question = querying.prepare(key)
    assert isinstance(question, querying.Question)
    seen = mine.get(f"/v1/operations/{operation_id}").json()["revision"]
    mine.post(f"/v1/operations/{operation_id}/resolve", {"decision": "retry", "reason": "Safe.", "revision": seen})
    rows.settle(rows.claim(operation_id), Proof.AMBIGUOUS)
    querying.conclude(question, querying.Reply(Said.NEVER_ARRIVED, "Said so.", None, 200), actor="query")
    querying.let_go(question)
    assert status(mine, operation_id) == "unknown"
    (word,) = words(operation_id)
    assert word.said == "never_arrived"


def test_an_operation_that_is_being_asked_about_is_not_asked_about_twice(mine: Caller) -> None:
    operation_id = unknown(mine, "http://127.0.0.1:9/")
    parameters = {
        name: value
        for name, value in connection.get_connection_params().items()
        if name not in ("cursor_factory", "context")
    }
    with psycopg.connect(**parameters, autocommit=True) as rival:
        rival.execute("SELECT pg_advisory_lock(%s, hashint8(%s))", (ASKING, rows._key(operation_id)))
        answer = ask(mine, operation_id)
        assert (answer.status_code, answer.json()["reason"]) == (409, "being_asked")
    assert words(operation_id) == []


def test_no_lock_is_left_behind(mine: Caller) -> None:
    with Receiver(lambda _: Answer(404)) as receiver:
        ask(mine, unknown(mine, receiver.url))
        ask(mine, unknown(mine, None))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)


def test_an_endpoint_without_a_query_url_cannot_be_asked(mine: Caller) -> None:
    operation_id = unknown(mine, None)
    answer = ask(mine, operation_id)
    assert answer.status_code == 422
    assert "query_url" in answer.json()["errors"][0]["field"]
    assert words(operation_id) == []


def test_a_secret_that_cannot_be_opened_means_that_nothing_is_asked_unsigned(mine: Caller) -> None:
    with Receiver() as receiver:
        operation_id = unknown(mine, receiver.url)
        with unguarded():
            Endpoint.objects.update(secret_sealed="0.AAAA")
        answer = ask(mine, operation_id)
        assert receiver.connections == 0
    assert (answer.status_code, answer.json()["said"]) == (200, "unknown")
    assert "nothing is sent unsigned" in answer.json()["detail"]


def test_it_needs_the_scope_and_the_tenant(mine: Caller, theirs: Caller) -> None:
    operation_id = unknown(mine, "http://127.0.0.1:9/")
    reader = rows.caller(Scope.READ)
    assert ask(reader, operation_id).status_code == 403
    assert ask(theirs, operation_id).status_code == 404
    assert ask(mine, "default/nothing/deliver/1").status_code == 404


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.5/", "ftp://127.0.0.1/", "http://me@127.0.0.1/", "http://127.0.0.1/" + "x" * QUERY_URL_LENGTH],
)
def test_a_query_url_is_checked_when_it_is_saved(mine: Caller, url: str) -> None:
    made = mine.post("/v1/endpoints", {"url": rows.URL, "capability": {"query_url": url}})
    assert made.status_code == 422
    assert [error["field"] for error in made.json()["errors"]] == ["capability.query_url"]
