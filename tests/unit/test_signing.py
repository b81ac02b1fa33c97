from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from deliveries.signing import (
    ACKNOWLEDGEMENT,
    QUERY,
    BadSecret,
    derived,
    is_timely,
    new_secret,
    secret_bytes,
    sign,
    verify,
)

_PUBLISHED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


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


def test_the_public_library_accepts_either_of_two_signatures_during_rotation() -> None:
    old, new = new_secret(), new_secret()
    now = int(datetime.now(UTC).timestamp())
    both = " ".join(sign(secret_bytes(secret), "evt_1", now, b"{}") for secret in (new, old))
    for secret in (old, new):
        headers = {"webhook-id": "evt_1", "webhook-timestamp": str(now), "webhook-signature": both}
        assert Webhook(secret).verify(b"{}", headers) == {}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (ACKNOWLEDGEMENT, "4PK8NcD4v1FLPL9iqeuR2nvLLxnM4QfJZ9BbqS5vK14="),
        (QUERY, "CC/kEX6F0jIRaOoPzvjqGtdZ86Sq0mqtzilST1ZWZ3o="),
    ],
)
def test_the_key_of_a_kind_of_messages_is_the_same_for_ever(kind: bytes, key: str) -> None:
    assert base64.b64encode(derived(bytes(range(32)), kind)).decode() == key


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
    ],
)
def test_what_is_not_a_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(BadSecret) as caught:
        secret_bytes(text)
    assert len(text) < 8 or text not in str(caught.value)


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
