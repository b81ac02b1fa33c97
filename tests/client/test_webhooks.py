"""`relay.client.webhooks` agrees with what Relay signs, and with the public libraries of Standard Webhooks."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook
from svix.webhooks import Webhook as SvixWebhook

from deliveries import querying, signing
from relay.client import webhooks
from relay.client.webhooks import BadSecret, Question, WebhookVerificationError

BODY = b'{"id":"in_1","name":"caf\xc3\xa9"}'
ID = "evt_01990f3a7d527c1e9a445b1f0c6d2e90"
OPERATION, RUN = "default/01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90/deliver/1", "01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90"
V1, V1A = signing.Signature.V1, signing.Signature.V1A


def signed(*secrets: str, body: bytes = BODY, at: int | None = None, message_id: str = ID) -> dict[str, str]:
    """The headers that Relay sends, signed with each secret."""
    now = int(time.time()) if at is None else at
    keys = tuple(signing.key_of(secret) for secret in secrets)
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(now),
        "Webhook-Signature": signing.sign_with_each(keys, message_id, now, body),
        "Relay-Event-Type": "invoice.paid",
        "Idempotency-Key": OPERATION,
        "Relay-Run-Id": RUN,
        "Relay-Epoch": "3",
        "Relay-Attempt": "2",
    }


def verifier(secret: str) -> str:
    """What a receiver holds."""
    return signing.key_of(secret).public or secret


@pytest.mark.parametrize("kind", [V1, V1A])
def test_what_relay_signs_verifies_and_says_what_it_is(kind: signing.Signature) -> None:
    secret = signing.new_secret(kind)
    verified = webhooks.verify(verifier(secret), signed(secret), BODY)
    assert (verified.id, verified.type, verified.operation, verified.run) == (ID, "invoice.paid", OPERATION, RUN)
    assert (verified.epoch, verified.attempt) == (3, 2)


@pytest.mark.parametrize("kind", [V1, V1A])
def test_while_a_secret_is_replaced_the_old_and_the_new_one_verify(kind: signing.Signature) -> None:
    old, new = signing.new_secret(kind), signing.new_secret(V1)
    headers = signed(new, old)
    webhooks.verify(verifier(old), headers, BODY)
    webhooks.verify(verifier(new), headers, BODY)


@pytest.mark.parametrize("kind", [V1, V1A])
@pytest.mark.parametrize(
    ("changed", "body", "why"),
    [
        ({}, BODY + b" ", "its signature is wrong"),
        ({"Webhook-Id": "evt_2"}, BODY, "its signature is wrong"),
        ({"Webhook-Timestamp": "1700000000"}, BODY, "its signature is wrong"),
        ({"Webhook-Signature": "v1,AAAA v1a,AAAA v2,x"}, BODY, "its signature is wrong"),
        ({"Webhook-Signature": "v1a,\udcff v1,\udcff"}, BODY, "its signature is wrong"),
        ({"Webhook-Signature": ""}, BODY, "it is not signed"),
        ({"Webhook-Id": "a.b"}, BODY, "malformed"),
        ({"Webhook-Timestamp": "1e9"}, BODY, "malformed"),
        ({"Webhook-Timestamp": "\u0661"}, BODY, "malformed"),
    ],
)
def test_what_was_changed_is_not_to_be_trusted(
    kind: signing.Signature, changed: dict[str, str], body: bytes, why: str
) -> None:
    secret = signing.new_secret(kind)
    webhooks.verify(verifier(secret), signed(secret), BODY)
    with pytest.raises(WebhookVerificationError, match=why):
        webhooks.verify(verifier(secret), {**signed(secret), **changed}, body)


@pytest.mark.parametrize("kind", [V1, V1A])
def test_another_secret_verifies_nothing(kind: signing.Signature) -> None:
    with pytest.raises(WebhookVerificationError, match="signature"):
        webhooks.verify(verifier(signing.new_secret(kind)), signed(signing.new_secret(kind)), BODY)


@pytest.mark.parametrize("off", [-301, 301])
def test_a_time_too_far_from_now_is_refused_unless_it_does_not_count(off: int) -> None:
    secret = signing.new_secret()
    headers = signed(secret, at=int(time.time()) + off + (1 if off > 0 else 0))
    with pytest.raises(WebhookVerificationError, match="timestamp"):
        webhooks.verify(secret, headers, BODY)
    webhooks.verify(secret, headers, BODY, tolerance=400)
    webhooks.verify(secret, headers, BODY, tolerance=None)


@pytest.mark.parametrize("secret", ["", "secret", "whsec_", "whsec_!", "whsec_YQ==", "whpk_YQ==", "whpk_!"])
def test_what_is_no_secret_is_said_to_be_none_and_not_repeated(secret: str) -> None:
    with pytest.raises(BadSecret) as refused:
        webhooks.verify(secret, signed(signing.new_secret()), BODY)
    assert not secret[6:] or secret not in str(refused.value)


def test_a_secret_that_only_relay_should_hold_verifies_nothing() -> None:
    with pytest.raises(BadSecret):
        webhooks.verify(signing.new_secret(V1A), signed(signing.new_secret(V1A)), BODY)


def test_text_is_refused_because_it_was_parsed_already() -> None:
    with pytest.raises(TypeError, match="bytes"):
        webhooks.verify(signing.new_secret(), {}, BODY.decode())  # type: ignore[arg-type]


@pytest.mark.parametrize("library", [Webhook, SvixWebhook])
def test_the_public_libraries_and_we_accept_the_same(library: type[Webhook | SvixWebhook]) -> None:
    secret = signing.new_secret()
    moment = datetime.now(UTC)
    signature = library(secret).sign("msg_1", moment, BODY.decode())
    prefix = "webhook" if library is Webhook else "svix"
    headers = {"id": "msg_1", "timestamp": str(int(moment.timestamp())), "signature": signature}
    webhooks.verify(secret, {f"webhook-{name}": value for name, value in headers.items()}, BODY)
    library(secret).verify(BODY, {f"{prefix}-{name}": value for name, value in headers.items()})
    with pytest.raises(WebhookVerificationError):
        webhooks.verify(secret, {f"webhook-{name}": value for name, value in headers.items()}, BODY + b"x")


@pytest.mark.parametrize("kind", [V1, V1A])
def test_an_acknowledgement_is_signed_with_the_key_for_acknowledgements(kind: signing.Signature) -> None:
    secret = signing.new_secret(kind)
    expected = signing.key_of(secret).derived(signing.ACKNOWLEDGEMENT)
    derived = webhooks.key_for(secret, webhooks.ACKNOWLEDGEMENT)
    assert signing.secret_bytes(derived) == expected
    for headers, body in (
        webhooks.acknowledgement(secret, OPERATION, RUN, "processed", remote_id="in_1", detail="caf\u00e9"),
        webhooks.acknowledgement(derived, OPERATION, RUN, "rejected", message_id="msg_7", derived=True),
    ):
        assert signing.is_timely(headers["webhook-id"], headers["webhook-timestamp"], time.time())
        assert signing.verify(
            expected, headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"], body
        )
        assert json.loads(body)["operation"] == OPERATION
    assert headers["webhook-id"] == "msg_7"
    assert json.loads(body) == {"operation": OPERATION, "run": RUN, "outcome": "rejected"}


@pytest.mark.parametrize("kind", [V1, V1A])
def test_a_question_of_relays_is_answered_and_nobody_elses(kind: signing.Signature) -> None:
    key = signing.key_of(signing.new_secret(kind))
    asked = {"operation": OPERATION, "run": RUN, "event": ID}
    headers = dict(querying._signed(asked, (key,), int(time.time())))
    held = key.for_questions().public or "whsec_" + signing._text(key.secret)  # type: ignore[union-attr]
    seen: list[Question] = []

    def look_up(question: Question) -> tuple[webhooks.Outcome, str | None]:
        seen.append(question)
        return "processed", "in_1"

    answer = webhooks.answer_question(held, headers, look_up)
    assert json.loads(answer) == {"operation": OPERATION, "outcome": "processed", "remote_id": "in_1"}
    assert seen == [Question(OPERATION, RUN, ID)]
    with pytest.raises(WebhookVerificationError):
        webhooks.answer_question(held, {**headers, "relay-question": json.dumps({"operation": "other"})}, look_up)
    assert len(seen) == 1


def test_a_delivery_is_no_question() -> None:
    """Whoever submits an event chooses a body that the endpoint's secret then signs."""
    secret = signing.new_secret()
    asked = json.dumps({"operation": OPERATION})
    headers = {**signed(secret, body=asked.encode()), "relay-question": asked}
    with pytest.raises(WebhookVerificationError, match="signature"):
        webhooks.question(secret, headers)
