"""What is too large is refused before it is sent: a client that announces a gigabyte does not have to deliver it."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import Any

import pytest

from deliveries.models import Event
from tests.submitting.producer import Producer

PATHS = ("/v1/events", "/v1/events/batch")
GIGABYTE = 1_000_000_000
ITEM = b'{"type":"a","data":1}'


def asked(producer: Producer, path: str, sent: bytes, *headers: str, key: str | None = None) -> tuple[int, Any]:
    """The answer to a request whose body is sent no further than `sent`."""
    host, _, port = producer.url.removeprefix("http://").partition(":")
    named = (f"Host: {host}:{port}", f"Authorization: Bearer {key or producer.key}", *headers)
    head = [f"POST {path} HTTP/1.1", *named, "", ""]
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        connection.sendall("\r\n".join(head).encode() + sent)
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < _length(answer):
            received = connection.recv(65_536)
            assert received, f"the connection ended after {answer!r}"
            answer += received
    return int(answer.split(b" ", 2)[1]), json.loads(answer.partition(b"\r\n\r\n")[2])


def _length(answer: bytes) -> int:
    head = answer.partition(b"\r\n\r\n")[0].lower()
    return int(head.partition(b"content-length:")[2].split(b"\r\n")[0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sent", [b"", b'[{"type":'])
def test_a_gigabyte_is_refused_by_its_announcement(producer: Producer, path: str, sent: bytes) -> None:
    status, said = asked(producer, path, sent, f"Content-Length: {GIGABYTE}")
    assert (status, said["code"]) == (413, "too_large")
    assert str(GIGABYTE) in said["detail"]
    assert "at most" in said["detail"]


@pytest.mark.parametrize("path", PATHS)
def test_who_waits_for_leave_to_send_a_gigabyte_gets_none(producer: Producer, path: str) -> None:
    status, _ = asked(producer, path, b"", f"Content-Length: {GIGABYTE}", "Expect: 100-continue")
    assert status == 413


@pytest.mark.parametrize("path", PATHS)
def test_a_body_without_a_length_is_refused(producer: Producer, path: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(ITEM), ITEM)
    for sent in (chunk, chunk + b"0\r\n\r\n"):
        status, said = asked(producer, path, sent, "Transfer-Encoding: chunked")
        assert (status, said["code"]) == (411, "length_required")
    assert not Event.objects.filter(tenant_id=producer.tenant_id).exists()


@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_is_told_so_before_anything_is_read(producer: Producer, path: str) -> None:
    status, said = asked(producer, path, b"", f"Content-Length: {GIGABYTE}", key="rk_unknown_key_of_nobody")
    assert (status, said["code"]) == (401, "key_unknown")


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/events", ITEM), ("/v1/events/batch", b"[" + ITEM + b"]")], ids=["alone", "batch"]
)
def test_a_body_that_ends_before_its_length_leaves_nothing(producer: Producer, path: str, body: bytes) -> None:
    """The part that was sent is an event by itself; but the producer did not mean it to end there."""
    host, _, port = producer.url.removeprefix("http://").partition(":")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {producer.key}\r\nContent-Length: 999\r\n\r\n"
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        assert not connection.recv(65_536).startswith(b"HTTP/1.1 2")
    # The server has done with it once it answers the next one on the same threads.
    assert producer.event(ITEM).status_code == 202
    assert Event.objects.filter(tenant_id=producer.tenant_id).count() == 1
