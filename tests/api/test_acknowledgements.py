"""What receivers may say about operations, signed with the secrets of their endpoints."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from standardwebhooks import Webhook

from deliveries import acknowledgements, ids, reconcile, signing
from deliveries.api.acknowledgements import MOST_WORDS
from deliveries.dispatch import claiming, wire
from deliveries.models import Acknowledgement, Said, Source
from deliveries.transport.base import Request
from ledger.managers import run as runs
from ledger.managers.operation import Claimed, Proof
from ledger.models import Operation
from tests.api import rows
from tests.api.rows import Caller
from tests.api.test_shape import shaped

pytestmark = pytest.mark.django_db

PATH = "/v1/acknowledgements"
SECRET = signing.new_secret()


@dataclass(frozen=True, slots=True)
class Known:
    """An operation as its receiver knows it."""

    by: Caller
    operation_id: str
    delivery_id: str
    secret: str = SECRET

    @property
    def run_id(self) -> str:
        return self.operation_id.split("/")[1]

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = self.by.get(f"/v1/operations/{self.operation_id}").json()
        return found

    def claim(self) -> Claimed:
        return rows.claim(self.operation_id)


def known(by: Caller, secret: str = SECRET, **endpoint: Any) -> Known:
    """A prepared operation of a new event to a new endpoint."""
    target = rows.endpoint(by, secret=secret, **endpoint)
    (delivery,) = (one for one in rows.deliveries_of(by, rows.event(by)) if one["endpoint_id"] == target)
    return Known(by, delivery["operation_id"], delivery["id"], secret)


def in_status(by: Caller, status: str, **endpoint: Any) -> Known:
    """An operation that came to `status` as a dispatcher and a user would bring it there."""
    one = known(by, **endpoint)
    match status:
        case "dispatching":
            one.claim()
        case "unknown":
            rows.settle(one.claim(), Proof.AMBIGUOUS)
        case "succeeded":
            rows.settle(one.claim(), Proof.ACCEPTED)
        case "failed_final":
            rows.settle(one.claim(), Proof.FINAL)
        case "cancelled":
            runs.cancel([uuid.UUID(one.run_id)])
    assert one.now["status"] == status
    return one


def message(one: Known, **changes: Any) -> dict[str, Any]:
    return {"operation": one.operation_id, "run": one.run_id, "outcome": "processed", **changes}


def key_of(secret: str) -> str:
    """The key for acknowledgements, as the public library takes it."""
    return "whsec_" + b64encode(signing.derived(signing.secret_bytes(secret), b"relay acknowledgement")).decode()


def signed(secret: str, body: bytes, *, message_id: str | None = None, age: timedelta = timedelta(0)) -> dict[str, str]:
    """The headers that the public library of Standard Webhooks makes with the key for acknowledgements."""
    return signed_with(key_of(secret), body, message_id=message_id, age=age)


def signed_with(
    key: str, body: bytes, *, message_id: str | None = None, age: timedelta = timedelta(0)
) -> dict[str, str]:
    message_id = message_id or f"msg_{uuid.uuid4().hex}"
    at = datetime.now(UTC) - age
    signature = Webhook(key).sign(message_id, at, body.decode())
    return {
        "webhook-id": message_id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature,
    }  # fmt: skip


def say(one: Known, secret: str | None = None, *, message_id: str | None = None, **changes: Any) -> Any:
    """Send an acknowledgement as a receiver does: without a key."""
    body = json.dumps(message(one, **changes)).encode()
    return Caller().post(PATH, body, **signed(secret or one.secret, body, message_id=message_id))


def words(one: Known) -> list[tuple[str, str]]:
    found = Acknowledgement.objects.filter(run_id=one.run_id).order_by("acknowledgement_id")
    return [(word.source, word.said) for word in found]


@pytest.mark.parametrize(
    ("status", "outcome", "moved", "after"),
    [
        ("prepared", "processed", False, "prepared"),
        ("prepared", "rejected", False, "prepared"),
        ("dispatching", "processed", False, "dispatching"),
        ("dispatching", "rejected", False, "dispatching"),
        ("unknown", "processed", True, "succeeded"),
        ("unknown", "rejected", True, "failed_final"),
        ("succeeded", "processed", False, "succeeded"),
        ("succeeded", "rejected", False, "succeeded"),
        ("failed_final", "processed", False, "failed_final"),
        ("failed_final", "rejected", False, "failed_final"),
        ("cancelled", "processed", False, "cancelled"),
        ("cancelled", "rejected", False, "cancelled"),
    ],
)
def test_a_word_is_recorded_in_every_status_and_moves_only_what_is_unknown(
    mine: Caller, status: str, outcome: str, moved: bool, after: str
) -> None:
    one = in_status(mine, status)
    before = one.now
    answer = say(one, outcome=outcome, remote_id="in_1042", detail="see the ledger")
    assert answer.status_code == 202, answer.content
    told = answer.json()
    assert (told["operation"], told["status"], told["moved"]) == (one.operation_id, after, moved)
    assert told["detail"]
    now = one.now
    assert now["status"] == after
    assert now["revision"] == before["revision"] + moved
    (word,) = now["acknowledgements"]
    assert (word["source"], word["said"], word["remote_id"], word["detail"]) == (
        "acknowledgement", outcome, "in_1042", "see the ledger",
    )  # fmt: skip
    assert mine.get(f"/v1/deliveries/{one.delivery_id}").json()["acknowledgements"] == [word]
    if moved:
        assert now["remote_id"] == "in_1042"
        assert now["result"]["converged_by"].startswith("acknowledgement of ep_")
        assert mine.get(f"/v1/deliveries/{one.delivery_id}").json()["runs"][0]["status"] == (
            "succeeded" if outcome == "processed" else "failed"
        )


@pytest.mark.parametrize(("outcome", "after"), [("processed", "succeeded"), ("rejected", "failed_final")])
def test_a_word_that_came_while_it_was_being_sent_settles_it_when_that_leaves_it_unknown(
    mine: Caller, outcome: str, after: str
) -> None:
    one = known(mine)
    claimed = one.claim()
    assert say(one, outcome=outcome).json()["moved"] is False
    rows.settle(claimed, Proof.AMBIGUOUS)
    assert one.now["status"] == "unknown"
    assert reconcile.sweep().converged == 1
    assert one.now["status"] == after


def test_a_word_about_what_was_not_sent_yet_never_moves_it(mine: Caller) -> None:
    one = known(mine)
    assert "not sent yet" in say(one).json()["detail"]
    rows.settle(one.claim(), Proof.AMBIGUOUS)
    assert reconcile.sweep().converged == 0
    assert one.now["status"] == "unknown"


def test_that_it_was_processed_ends_what_waits_to_be_sent_again(mine: Caller) -> None:
    one = known(mine)
    rows.settle(one.claim(), Proof.NOT_TAKEN, retry_ms=0)
    assert one.now["status"] == "prepared"
    told = say(one).json()
    assert (told["moved"], told["status"]) == (True, "succeeded")
    assert told["detail"] == "This settled it: it is succeeded now."


def test_that_sends_were_rejected_which_are_proven_not_to_have_arrived_never_moves_it(mine: Caller) -> None:
    one = known(mine)
    rows.settle(one.claim(), Proof.NOT_TAKEN, retry_ms=0)
    told = say(one, outcome="rejected").json()
    assert (told["moved"], told["status"]) == (False, "prepared")
    assert "proven not to have arrived" in told["detail"]
    rows.settle(one.claim(), Proof.AMBIGUOUS)
    assert reconcile.sweep().converged == 0
    assert one.now["status"] == "unknown"


def test_while_it_is_sent_again_it_is_not_converged(mine: Caller) -> None:
    one = known(mine)
    rows.settle(one.claim(), Proof.AMBIGUOUS, retry_ms=0, window_ms=3_600_000)
    claimed = one.claim()
    assert claimed.status == "unknown"
    answer = say(one).json()
    assert (answer["status"], answer["moved"]) == ("unknown", False)
    assert reconcile.sweep().converged == 0
    rows.settle(claimed, Proof.AMBIGUOUS)
    assert reconcile.sweep().converged == 1
    assert one.now["status"] == "succeeded"


def test_an_acknowledgement_of_an_old_run_moves_no_new_run(mine: Caller) -> None:
    first = in_status(mine, "failed_final", capability={"idempotent": False})
    replayed = mine.post(f"/v1/deliveries/{first.delivery_id}/replay").json()
    second = Known(mine, replayed["operation_id"], first.delivery_id)
    assert second.run_id != first.run_id
    rows.settle(second.claim(), Proof.AMBIGUOUS)
    before = second.now
    answer = say(first)
    assert (answer.status_code, answer.json()["moved"], answer.json()["status"]) == (202, False, "failed_final")
    assert reconcile.sweep().converged == 0
    assert second.now == before
    assert words(first) == [("acknowledgement", "processed")]
    body = shaped(say(second, run=first.run_id), 422)
    assert [error["field"] for error in body["errors"]] == ["run"]
    assert second.now == before


def test_the_same_message_again_is_recorded_once_and_other_content_under_its_id_is_refused(mine: Caller) -> None:
    one = in_status(mine, "dispatching")
    for _ in range(3):
        assert say(one, message_id="msg_1").status_code == 202
    assert words(one) == [("acknowledgement", "processed")]
    assert shaped(say(one, message_id="msg_1", outcome="rejected"), 409)["code"] == "message_conflict"
    assert words(one) == [("acknowledgement", "processed")]
    assert say(one, message_id="msg_2").status_code == 202
    assert len(words(one)) == 2


def test_twenty_words_about_one_operation_are_kept_and_repeats_are_answered_as_before(mine: Caller) -> None:
    one, other = known(mine), in_status(mine, "unknown")
    for number in range(MOST_WORDS):
        assert say(one, message_id=f"msg_{number}").status_code == 202
    refused = shaped(say(one), 429)
    assert refused["code"] == "too_many_acknowledgements"
    assert refused["detail"].startswith("20 acknowledgements of this operation are on record")
    assert say(one, message_id="msg_7").status_code == 202
    assert shaped(say(one, message_id="msg_7", outcome="rejected"), 409)["code"] == "message_conflict"
    assert len(words(one)) == MOST_WORDS
    assert say(other).json()["moved"] is True, "another operation has its own twenty"


def test_what_the_receiver_answered_to_questions_does_not_use_up_its_words(mine: Caller) -> None:
    one = known(mine)
    for _ in range(MOST_WORDS):
        acknowledgements.record(
            operation_key=Operation.objects.get(run_id=one.run_id).operation_key, run_id=uuid.UUID(one.run_id),
            source=Source.QUERY, said=Said.UNKNOWN, remote_id=None, detail="", actor="query", status=404,
        )  # fmt: skip
    assert say(one).status_code == 202


@pytest.mark.django_db(transaction=True)
def test_those_who_speak_at_once_do_not_get_past_the_twenty(mine: Caller) -> None:
    one = known(mine)
    for _ in range(MOST_WORDS - 2):
        assert say(one).status_code == 202
    together, statuses = threading.Barrier(6, timeout=20), []

    def speak() -> None:
        try:
            connection.ensure_connection()
            together.wait()
            statuses.append(say(one).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=speak) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(statuses) == [202, 202, 429, 429, 429, 429]
    assert len(words(one)) == MOST_WORDS


def captured(by: Caller, data: dict[str, Any]) -> Request:
    """A delivery of an event with these data, as it goes on the wire."""
    event_id = rows.event(by, data=data)
    claimed, _ = claiming.claim(claiming.Walk(), owner="w:1:a", batch=10, ttl_ms=30_000)
    (delivery,) = (one for one in claimed if ids.render(ids.EVENT, one.content.event_id) == event_id)
    return wire.request_of(delivery, now=time.monotonic(), timeout_ms=1_000)


def test_a_delivery_whose_body_reads_like_an_acknowledgement_is_none(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    request = captured(mine, message(one))
    assert json.loads(request.body) == message(one)
    headers = {name: value for name, value in request.headers if name.startswith("webhook-")}
    assert Webhook(SECRET).verify(request.body, headers) == message(one), "it is signed, as a delivery"
    answer = shaped(Caller().post(PATH, request.body, **headers), 401)
    assert answer["detail"].startswith("A webhook-id that begins with evt_")
    assert words(one) == []
    assert one.now["status"] == "unknown"


@pytest.mark.parametrize("message_id", ["evt_1", "qry_1"])
def test_ids_like_those_of_relays_own_messages_are_refused_whoever_signed(mine: Caller, message_id: str) -> None:
    one = in_status(mine, "unknown")
    assert "own messages" in shaped(say(one, message_id=message_id), 401)["detail"]
    assert words(one) == []


@pytest.mark.parametrize("kind", [None, b"relay query"])
def test_the_endpoints_own_secret_and_the_key_for_questions_sign_no_acknowledgement(
    mine: Caller, kind: bytes | None
) -> None:
    one = in_status(mine, "unknown")
    body = json.dumps(message(one)).encode()
    secret = signing.secret_bytes(SECRET)
    key = "whsec_" + b64encode(secret if kind is None else signing.derived(secret, kind)).decode()
    answer = shaped(Caller().post(PATH, body, **signed_with(key, body)), 401)
    assert 'see "Acknowledging later" in docs/receiving.md' in answer["detail"]
    assert words(one) == []
    assert Caller().post(PATH, body, **signed(SECRET, body)).status_code == 202


def test_one_of_several_signatures_is_enough(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    body = json.dumps(message(one)).encode()
    headers = signed(SECRET, body)
    other = signed(signing.new_secret(), body)["webhook-signature"]
    headers["webhook-signature"] = f"v1a,xyz {other} {headers['webhook-signature']}"
    assert Caller().post(PATH, body, **headers).status_code == 202


def test_the_bytes_count_and_not_what_they_mean(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    body = json.dumps(message(one), indent=3).encode()
    assert Caller().post(PATH, body, **signed(SECRET, json.dumps(message(one)).encode())).status_code == 401
    assert Caller().post(PATH, body, **signed(SECRET, body)).status_code == 202


def test_whatever_does_not_prove_the_endpoint_is_answered_alike(mine: Caller, theirs: Caller) -> None:
    one, other = in_status(mine, "unknown"), in_status(theirs, "unknown", secret=signing.new_secret())
    foreign = Known(theirs, other.operation_id, other.delivery_id)
    nowhere = Known(mine, f"default/{uuid.uuid4()}/deliver/1", one.delivery_id)
    disguised = Known(mine, one.operation_id.replace("default", "other"), one.delivery_id)
    body = json.dumps(message(one)).encode()
    good = signed(SECRET, body)
    refused = [
        say(one, signing.new_secret()),
        say(foreign, SECRET),
        say(nowhere),
        say(disguised),
        Caller().post(PATH, body),
        mine.post(PATH, body),
        Caller().post(PATH, body, **signed(SECRET, body, age=timedelta(minutes=6))),
        Caller().post(PATH, body, **signed(SECRET, body, age=timedelta(minutes=-6))),
        *(
            Caller().post(PATH, body, **{**good, name: value})
            for name, value in [
                ("webhook-id", "msg_other"),
                ("webhook-id", ""),
                ("webhook-id", "a.b"),
                ("webhook-timestamp", "soon"),
                ("webhook-timestamp", "1" * 30),
                ("webhook-timestamp", "-1"),
                ("webhook-signature", ""),
                ("webhook-signature", good["webhook-signature"][:-4]),
                ("webhook-signature", good["webhook-signature"].removeprefix("v1,")),
                ("webhook-signature", "ü"),
            ]
        ),
    ]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.content for answer in refused}) == 1
    assert not Acknowledgement.objects.exists()
    assert one.now["status"] == "unknown"


@pytest.mark.parametrize("age", [timedelta(minutes=4), timedelta(minutes=-4)])
def test_clocks_may_be_some_minutes_apart(mine: Caller, age: timedelta) -> None:
    one = in_status(mine, "unknown")
    body = json.dumps(message(one)).encode()
    assert Caller().post(PATH, body, **signed(SECRET, body, age=age)).status_code == 202


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"operation": None}, "operation"),
        ({"operation": "a/b/c"}, "operation"),
        ({"operation": 7}, "operation"),
        ({"run": "other"}, "run"),
        ({"run": None}, "run"),
        ({"run": str(uuid.UUID(int=7))}, "run"),
        ({"outcome": "never_arrived"}, "outcome"),
        ({"outcome": True}, "outcome"),
        ({"remote_id": 7}, "remote_id"),
        ({"remote_id": "x" * 256}, "remote_id"),
        ({"detail": ["x"]}, "detail"),
        ({"detail": "x" * 2_001}, "detail"),
        ({"more": 1}, "more"),
    ],
)
def test_a_field_that_is_wrong_is_named(mine: Caller, changes: dict[str, Any], field: str) -> None:
    one = in_status(mine, "unknown")
    body = shaped(say(one, **changes), 422)
    assert [error["field"] for error in body["errors"]] == [field]
    assert not Acknowledgement.objects.exists()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"7", b"[" * 10_000])
def test_what_cannot_be_read_is_malformed(body: bytes, mine: Caller) -> None:
    headers = {
        "webhook-id": "msg_1", "webhook-timestamp": str(int(datetime.now(UTC).timestamp())), "webhook-signature": "v1,",
    }  # fmt: skip
    shaped(Caller().post(PATH, body, **headers), 400)


def test_a_body_that_is_too_large_is_refused(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    assert say(one, detail="x" * 2_000).status_code == 202
    shaped(say(one, detail="x" * 16_000), 422)
    shaped(say(one, detail="x" * 17_000), 413)


def test_text_that_the_database_cannot_hold_is_kept_readable(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    assert say(one, message_id="msg_1", detail="a\0b", remote_id="c\0d").status_code == 202
    assert say(one, message_id="msg_1", detail="a\0b", remote_id="c\0d").status_code == 202, "a repeat is a repeat"
    (word,) = one.now["acknowledgements"]
    assert (word["detail"], word["remote_id"]) == ("a\ufffdb", "c\ufffdd")


def test_until_the_signature_is_verified_there_is_one_read_at_most(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    with CaptureQueriesContext(connection) as queries:
        say(one, signing.new_secret())
    assert len(queries) <= 1
    body = json.dumps(message(one)).encode()
    with CaptureQueriesContext(connection) as queries:
        Caller().post(PATH, body, **signed(SECRET, body, age=timedelta(hours=1)))
    assert not queries


def test_the_word_of_a_deleted_endpoint_still_counts(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    assert mine("DELETE", f"/v1/endpoints/{one.now['endpoint_id']}").status_code == 204
    assert say(one).json()["moved"] is True


def test_a_cancelled_delivery_keeps_the_truth_of_what_was_sent(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    runs.cancel([uuid.UUID(one.run_id)])
    assert say(one).json()["status"] == "succeeded"
    delivery = mine.get(f"/v1/deliveries/{one.delivery_id}").json()
    assert (delivery["status"], delivery["runs"][0]["status"]) == ("delivered", "cancelled")


def test_the_documented_example_works(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    models = Caller().get("/v1/openapi.json").json()["components"]["schemas"]
    (example,) = models["AcknowledgementIn"]["examples"]
    assert set(example) >= {"operation", "run", "outcome"}
    assert say(one, **{k: v for k, v in example.items() if k not in ("operation", "run")}).json()["moved"] is True
    assert Operation.objects.get(run_id=one.run_id).remote_id == example["remote_id"]


def test_the_example_for_receivers_works(mine: Caller) -> None:
    one = in_status(mine, "unknown")
    text = (settings.BASE_DIR / "docs" / "receiving.md").read_text(encoding="utf-8")
    sections = {section.partition("\n")[0]: section for section in text.split("\n## ")}
    namespace: dict[str, Any] = {}
    for name in ("Keys for other messages", "Acknowledging later"):
        (block,) = re.findall(r"```python\n(.*?)```", sections[name], re.DOTALL)
        exec(block, namespace)  # noqa: S102 - our own documentation
    headers, body = namespace["acknowledgement"](SECRET, one.operation_id, one.run_id, "processed")
    assert Caller().post(PATH, body, **headers).json()["moved"] is True
