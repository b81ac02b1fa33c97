"""During a rotation a receiver may hold either secret also where it asks nothing of deliveries: when it acknowledges,
and when Relay asks it."""

from __future__ import annotations

import base64
import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from deliveries import ids, signing
from deliveries.models import Endpoint
from deliveries.signing import ACKNOWLEDGEMENT, QUERY, key_of, new_secret
from ledger.managers.operation import Proof
from tests.api import rows
from tests.api.rows import Caller
from tests.receiver import Answer, Receiver

pytestmark = pytest.mark.usefixtures("db")

HOUR = timedelta(hours=1)


def text_of(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def acknowledge(operation_id: str, key: str) -> int:
    """The status of the answer to an acknowledgement that a public library signed with `key`."""
    body = json.dumps({"operation": operation_id, "run": operation_id.split("/")[1], "outcome": "processed"})
    message_id, at = f"msg_{uuid.uuid4().hex}", datetime.now(UTC)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(key).sign(message_id, at, body),
    }
    status: int = Caller().post("/v1/acknowledgements", body.encode(), **headers).status_code
    return status


def with_operation(by: Caller, **fields: Any) -> tuple[str, str, str]:
    """A new endpoint, its secret, and an operation that was sent to it and is unknown."""
    made = by.post("/v1/endpoints", {"url": rows.URL, **fields}).json()
    (delivery,) = (one for one in rows.deliveries_of(by, rows.event(by)) if one["endpoint_id"] == made["id"])
    rows.settle(rows.claim(delivery["operation_id"]), Proof.AMBIGUOUS)
    return made["id"], made["secret"], delivery["operation_id"]


def rotate(by: Caller, endpoint: str, **body: Any) -> dict[str, Any]:
    answer = by.post(f"/v1/endpoints/{endpoint}/secret/rotate", body)
    assert answer.status_code == 200, answer.content
    made: dict[str, Any] = answer.json()
    return made


def acknowledging(secret: str) -> str:
    """The key for acknowledgements, made from what the owner of the secret was shown."""
    return text_of(key_of(secret).derived(ACKNOWLEDGEMENT))


def end_overlaps(endpoint: str) -> None:
    """The overlaps are over: time in the database, not a faked clock."""
    row = Endpoint.objects.get(pk=ids.parse(ids.ENDPOINT, endpoint))
    past = (datetime.now(UTC) - HOUR).isoformat()
    row.former_secrets = [{**one, "until": past} for one in row.former_secrets]
    Endpoint.objects.filter(pk=row.pk).update(former_secrets=row.former_secrets)


def test_an_acknowledgement_counts_under_either_secret_until_the_overlap_ends(mine: Caller) -> None:
    target, first, operation_id = with_operation(mine)
    second = rotate(mine, target)["secret"]
    third = rotate(mine, target)["secret"]
    for secret in (first, second, third):
        assert acknowledge(operation_id, acknowledging(secret)) == 202
        assert acknowledge(operation_id, secret) == 401, "the secret itself signs deliveries and nothing else"
    end_overlaps(target)
    assert [acknowledge(operation_id, acknowledging(one)) for one in (first, second, third)] == [401, 401, 202]


def test_an_acknowledgement_counts_no_longer_after_a_rotation_without_overlap(mine: Caller) -> None:
    target, first, operation_id = with_operation(mine)
    second = rotate(mine, target, overlap_hours=0)["secret"]
    assert [acknowledge(operation_id, acknowledging(one)) for one in (first, second)] == [401, 202]


def test_a_stranger_is_refused_during_a_rotation_too(mine: Caller) -> None:
    target, _, operation_id = with_operation(mine)
    rotate(mine, target)
    assert acknowledge(operation_id, acknowledging(new_secret())) == 401


def test_who_holds_only_a_public_key_acknowledges_with_the_key_that_it_is_given(mine: Caller) -> None:
    target, first, operation_id = with_operation(mine)
    made = rotate(mine, target, signature="v1a")
    assert acknowledge(operation_id, acknowledging(made["secret"])) == 202
    assert acknowledge(operation_id, acknowledging(first)) == 202
    # Nothing that can be made of what is public is of use.
    for public in (made["public_key"], made["question_key"]):
        material = base64.b64decode(public.removeprefix("whpk_"))
        assert acknowledge(operation_id, text_of(material)) == 401
        assert acknowledge(operation_id, text_of(signing.derived(material, ACKNOWLEDGEMENT))) == 401


def asked(by: Caller, operation_id: str, receiver: Receiver) -> dict[str, str]:
    """The headers of the question that Relay asks now."""
    before = len(receiver.requests)
    assert by.post(f"/v1/operations/{operation_id}/query").status_code == 200
    return receiver.requests[before].headers


def test_a_question_is_signed_with_both_secrets_until_the_overlap_ends(mine: Caller) -> None:
    with Receiver(lambda _: Answer(404)) as receiver:
        target, first, operation_id = with_operation(mine, capability={"query_url": receiver.url})
        second = rotate(mine, target)["secret"]
        both = asked(mine, operation_id, receiver)
        for secret in (first, second):
            assert Webhook(text_of(key_of(secret).derived(QUERY))).verify(both["relay-question"], both)
        end_overlaps(target)
        alone = asked(mine, operation_id, receiver)
    with pytest.raises(WebhookVerificationError):
        Webhook(text_of(key_of(first).derived(QUERY))).verify(alone["relay-question"], alone)
    assert Webhook(text_of(key_of(second).derived(QUERY))).verify(alone["relay-question"], alone)


def test_a_question_to_who_holds_public_keys_verifies_with_the_one_for_questions_and_no_other(mine: Caller) -> None:
    with Receiver(lambda _: Answer(404)) as receiver:
        target, first, operation_id = with_operation(mine, capability={"query_url": receiver.url})
        made = rotate(mine, target, signature="v1a")
        headers = asked(mine, operation_id, receiver)
    pair, shared = headers["webhook-signature"].split(" ")
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{headers['relay-question']}".encode()
    assert pair.startswith("v1a,")
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    verifying = {name: base64.b64decode(made[name].removeprefix("whpk_")) for name in ("question_key", "public_key")}
    signature = base64.b64decode(pair.removeprefix("v1a,"))
    Ed25519PublicKey.from_public_bytes(verifying["question_key"]).verify(signature, content)
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(verifying["public_key"]).verify(signature, content)
    assert shared.startswith("v1,")
    assert Webhook(text_of(key_of(first).derived(QUERY))).verify(headers["relay-question"], headers)
