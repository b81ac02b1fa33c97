from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError
from svix.webhooks import Webhook as SvixWebhook

from deliveries.signing import (
    ACKNOWLEDGEMENT,
    QUERY,
    BadSecret,
    PairKey,
    SharedKey,
    Signature,
    derived,
    is_timely,
    key_of,
    new_secret,
    secret_bytes,
    sign,
    sign_with_each,
    verify,
)

_PUBLISHED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_PAIR = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
_PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
_PAIR_SIGNATURE = "hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
_MESSAGE = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')


def verifies(public: str, signature: str, webhook_id: str, timestamp: int, body: bytes) -> bool:
    """What a receiver of v1a does, written from the specification and on `cryptography` alone."""
    assert public.startswith("whpk_") and signature.startswith("v1a,")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public[5:]))
    try:
        key.verify(base64.b64decode(signature[4:]), f"{webhook_id}.{timestamp}.".encode() + body)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize(
    ("secret", "webhook_id", "timestamp", "body", "signature"),
    [
        (
            secret_bytes(_PUBLISHED),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (bytes(range(32)), "msg_vector_1", 1760000000, b'{"a":1}', "v1,RClHoOLuKpYHh8RQC8BEbzOgjPIQ3iS8WlqX74BjK4U="),
        (
            bytes(range(64)),
            "msg_vector_2",
            1760000000,
            '{"name":"žluťoučký"}'.encode(),
            "v1,/jZAAwJpmG8qwYYs71KqtoaEN7OBs2bdO4G9IA+egHU=",
        ),
        (bytes(range(24)), "msg_vector_3", 0, b"", "v1,IzRLDee+jCNjQidW3hhRS3+ecJZoGKbIjNdCeJZVw4M="),
    ],
)
def test_the_published_vectors_are_signed_as_published(
    secret: bytes, webhook_id: str, timestamp: int, body: bytes, signature: str
) -> None:
    assert sign(secret, webhook_id, timestamp, body) == signature


def test_the_published_asymmetric_vector_is_signed_as_published() -> None:
    key = key_of(_PAIR)
    assert key.public == _PUBLIC
    assert key.sign(*_MESSAGE) == f"v1a,{_PAIR_SIGNATURE}"
    assert isinstance(key, PairKey) and key.secret_text == _PAIR
    assert verifies(_PUBLIC, f"v1a,{_PAIR_SIGNATURE}", *_MESSAGE)


def test_the_signature_beside_another_message_in_the_specification_is_not_that_messages() -> None:
    # The specification's text shows the v1a signature of the vector above next to its own example message.
    example = ("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1674087231, b'{"type":"example.created"}')
    assert not verifies(_PUBLIC, f"v1a,{_PAIR_SIGNATURE}", *example)


@given(st.binary(max_size=300), st.integers(0, 2**33))
def test_a_receiver_with_the_public_key_verifies_what_we_sign_and_nothing_else(body: bytes, timestamp: int) -> None:
    key = key_of(new_secret(Signature.V1A))
    signature = key.sign("evt_1", timestamp, body)
    public = str(key.public)
    assert verifies(public, signature, "evt_1", timestamp, body)
    assert not verifies(public, signature, "evt_2", timestamp, body)
    assert not verifies(public, signature, "evt_1", timestamp + 1, body)
    assert not verifies(public, signature, "evt_1", timestamp, body + b" ")
    assert not verifies(_PUBLIC, signature, "evt_1", timestamp, body)


def test_a_new_pair_holds_64_bytes_and_no_two_are_alike() -> None:
    one, other = new_secret(Signature.V1A), new_secret(Signature.V1A)
    assert one != other
    assert len(base64.b64decode(one.removeprefix("whsk_"))) == 64
    assert key_of(one) == key_of(one) != key_of(other)


def test_keys_never_show_themselves() -> None:
    for text in (new_secret(), new_secret(Signature.V1A)):
        key = key_of(text)
        key.sign("evt_1", 1, b"{}")
        shown = f"{key!r} {key!s}"
        material = base64.b64decode(text.partition("_")[2])
        assert str(material[:32])[2:-1] not in shown and material[:16].hex() not in shown
        assert base64.b64encode(material).decode() not in shown


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_the_public_library_verifies_what_we_sign(text: str) -> None:
    secret = new_secret()
    now = int(datetime.now(UTC).timestamp())
    body = json.dumps(text, ensure_ascii=False).encode()
    headers = {
        "webhook-id": "evt_0199",
        "webhook-timestamp": str(now),
        "webhook-signature": sign(secret_bytes(secret), "evt_0199", now, body),
    }
    # The library parses the body after it has verified it, so the body is JSON.
    assert Webhook(secret).verify(body, headers) == text
    SvixWebhook(secret).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        SvixWebhook(new_secret()).verify(body, headers)


@pytest.mark.parametrize("kinds", [["v1", "v1"], ["v1a", "v1"], ["v1", "v1a"], ["v1", "v1a", "v1", "v1a", "v1"]])
def test_during_a_rotation_whoever_holds_one_of_the_secrets_verifies(kinds: list[str]) -> None:
    texts = [new_secret(Signature(kind)) for kind in kinds]
    now, body = int(datetime.now(UTC).timestamp()), '{"name":"žluťoučký"}'.encode()
    header = sign_with_each(tuple(key_of(text) for text in texts), "evt_1", now, body)
    assert re.fullmatch(r"v1a?,[A-Za-z0-9+/=]+( v1a?,[A-Za-z0-9+/=]+)*", header)
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(now), "webhook-signature": header}
    for text, signature in zip(texts, header.split(" "), strict=True):
        key = key_of(text)
        if isinstance(key, SharedKey):
            assert Webhook(text).verify(body, headers) == {"name": "žluťoučký"}
            SvixWebhook(text).verify(body, headers)
        else:
            assert verifies(str(key.public), signature, "evt_1", now, body)


def test_nothing_is_signed_by_nobody() -> None:
    with pytest.raises(ValueError, match="unsigned"):
        sign_with_each((), "evt_1", 1, b"")


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (ACKNOWLEDGEMENT, "4PK8NcD4v1FLPL9iqeuR2nvLLxnM4QfJZ9BbqS5vK14="),
        (QUERY, "CC/kEX6F0jIRaOoPzvjqGtdZ86Sq0mqtzilST1ZWZ3o="),
    ],
)
def test_the_key_of_a_kind_of_messages_is_the_same_for_ever(kind: bytes, key: str) -> None:
    assert base64.b64encode(derived(bytes(range(32)), kind)).decode() == key


def test_the_keys_of_other_messages_of_a_pair_are_the_same_for_ever() -> None:
    key = PairKey(bytes(range(32)))
    assert base64.b64encode(key.derived(ACKNOWLEDGEMENT)).decode() == "4PK8NcD4v1FLPL9iqeuR2nvLLxnM4QfJZ9BbqS5vK14="
    asking = key.for_questions()
    assert isinstance(asking, PairKey) and asking.seed == key.derived(QUERY)
    assert asking.public == "whpk_OdNr//wxCbS63fA0IfpDFDhqmG8lQ8s8/q3biqCFT/c="
    assert asking.public != key.public


def test_the_name_of_a_kind_never_reads_like_something_that_is_signed() -> None:
    with pytest.raises(ValueError, match="full stop"):
        derived(bytes(32), b"evt_1.7.{}")


def test_a_new_secret_holds_32_random_bytes() -> None:
    assert len(secret_bytes(new_secret())) == 32
    assert new_secret() != new_secret()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w",
        "whsec_",
        "whsec_%",
        "whsec_wronglength",
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        "hwsec_" + base64.b64encode(bytes(32)).decode(),
        "WHSEC_" + base64.b64encode(bytes(32)).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_" + base64.b64encode(bytes(32)).decode().rstrip("="),
        "whsec_" + base64.b64encode(bytes(32)).decode() + "\n",
        "whsec_" + "é" * 44,
        "whsec_" + base64.b64encode(bytes(32)).decode() + "==",
        "whsk_",
        "whsk_%",
        "whsk_" + base64.b64encode(bytes(32)).decode(),
        "whsk_" + base64.b64encode(bytes(63)).decode(),
        "whsk_" + base64.b64encode(bytes(64)).decode(),
        "whsk_" + base64.b64encode(bytes(65)).decode(),
        _PAIR.replace("whsk_6", "whsk_7"),
        _PAIR.rstrip("="),
        _PAIR + "\n",
        _PAIR.replace("whsk_", "whsec_x"),
        " " + _PAIR,
    ],
)
def test_what_is_not_a_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(BadSecret) as caught:
        key_of(text)
    assert len(text) < 8 or text.partition("_")[2][:8] not in str(caught.value)


def test_a_pair_is_no_shared_secret() -> None:
    with pytest.raises(BadSecret, match="whsec_"):
        secret_bytes(_PAIR)


def test_an_id_with_a_full_stop_is_never_signed() -> None:
    with pytest.raises(ValueError, match="full stop"):
        sign(bytes(32), "evt_1.2", 0, b"")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_we_verify_what_the_public_library_signs(text: str) -> None:
    secret, at = new_secret(), datetime.now(UTC)
    signature = Webhook(secret).sign("msg_1", at, text)
    stamp = str(int(at.timestamp()))
    assert verify(secret_bytes(secret), "msg_1", stamp, signature, text.encode())
    assert verify(secret_bytes(secret), "msg_1", stamp, f"v1,AAAA {signature}", text.encode())
    for strange in ("", "v1,", signature[:-1], signature.lower(), signature.replace(",", " "), "\udcff", "é"):
        assert not verify(secret_bytes(secret), "msg_1", stamp, strange, text.encode())
    assert not verify(secret_bytes(new_secret()), "msg_1", stamp, signature, text.encode())
    assert not verify(secret_bytes(secret), "msg_2", stamp, signature, text.encode())
    assert not verify(secret_bytes(secret), "msg_1", str(int(stamp) + 1), signature, text.encode())
    assert not verify(secret_bytes(secret), "msg_1", stamp, signature, text.encode() + b" ")


def test_no_more_than_ten_signatures_are_looked_at() -> None:
    secret = secret_bytes(new_secret())
    signature = sign(secret, "msg_1", 7, b"")
    assert verify(secret, "msg_1", "7", " ".join(["v1,x"] * 9 + [signature]), b"")
    assert not verify(secret, "msg_1", "7", " ".join(["v1,x"] * 10 + [signature]), b"")


@pytest.mark.parametrize(
    ("message_id", "timestamp", "timely"),
    [
        ("msg_1", "1000", True),
        ("msg_1", "1300", True),
        ("msg_1", "700", True),
        ("msg_1", "1301", False),
        ("msg_1", "699", False),
        ("", "1000", False),
        ("a.b", "1000", False),
        ("a b", "1000", False),
        ("a\n", "1000", False),
        ("é", "1000", False),
        ("m" * 255, "1000", True),
        ("m" * 256, "1000", False),
        ("msg_1", "", False),
        ("msg_1", "1e3", False),
        ("msg_1", "1000.0", False),
        ("msg_1", "\u0661\u0660\u0660\u0660", False),
        ("msg_1", " 1000", False),
    ],
)
def test_an_id_and_a_time_are_well_formed_and_near(message_id: str, timestamp: str, timely: bool) -> None:
    assert is_timely(message_id, timestamp, 1000.0) is timely
