"""One request through `requests`, against real sockets on loopback: what it proves, and what it never does."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deliveries.egress import EgressPolicy
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import BODY_KEPT
from deliveries.transport.single import Answer as Fetched
from deliveries.transport.single import fetch
from tests.receiver import Answer, Received, Receiver
from tests.transports import BIG, BODY, HEADERS, LOOPBACK, certificate, closed_port

DEADLINE_MS = 700
HERE = ("127.0.0.1",)
OK = b"HTTP/1.1 200 OK\r\n"


def get(url: str, **options: Any) -> Fetched:
    """A GET, and the promise that it was over in time."""
    options = {"timeout_ms": 5000, "policy": LOOPBACK, **options}
    begun = time.monotonic()
    fetched = fetch("GET", url, HEADERS, **options)
    assert time.monotonic() - begun < options["timeout_ms"] / 1000 + 0.5
    return fetched


def post(url: str, body: bytes = BODY, **options: Any) -> Fetched:
    return fetch("POST", url, HEADERS, body=body, **{"timeout_ms": 5000, "policy": LOOPBACK, **options})


# Answered


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 308, 404, 410, 429, 500, 503, 999])
def test_a_complete_answer_is_answered_whatever_it_says(status: int) -> None:
    with Receiver(lambda _: Answer(status, (("Retry-After", "7"), ("Location", "/elsewhere")))) as receiver:
        fetched = post(receiver.url)
        assert len(receiver.requests) == receiver.connections == 1  # a redirect among them was not followed
    assert (fetched.verdict, fetched.status, fetched.error) == (ANSWERED, status, "")
    assert ("Retry-After", "7") in fetched.headers
    evidence = fetched.evidence
    assert evidence.request_complete and evidence.head_complete
    assert (evidence.sends, evidence.body_bytes_written) == (1, len(BODY))
    assert evidence.bytes_offered > len(BODY)
    assert evidence.peer == f"127.0.0.1 {receiver.port}"


def test_the_receiver_gets_exactly_the_request_that_was_given() -> None:
    with Receiver(lambda _: Answer(body=b"{}")) as receiver:
        assert get(receiver.url + "a/../b?c=%20d&e=%7ef").body == b"{}"
        post(receiver.url + "x")
    asked, posted = receiver.requests
    assert (asked.method, asked.path, asked.body) == ("GET", "/a/../b?c=%20d&e=%7ef", b"")
    assert (posted.method, posted.path, posted.body) == ("POST", "/x", BODY)
    always = {
        "host": f"127.0.0.1:{receiver.port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "user-agent": "Relay",
        "content-type": "application/json",
        "webhook-id": "evt_1",
        "webhook-signature": "v1,AAAA",
    }
    assert asked.headers == always
    assert posted.headers == {**always, "content-length": str(len(BODY))}


def test_the_body_of_a_redirect_is_not_read() -> None:
    with Receiver() as receiver:
        receiver.answers.append(
            Answer(raw=b"HTTP/1.1 307 Go\r\nLocation: http://169.254.169.254/\r\nContent-Length: 9\r\n\r\n")
        )
        fetched = get(receiver.url, timeout_ms=3000)
    assert (fetched.status, fetched.body, fetched.error) == (307, b"", "")
    assert fetched.evidence.elapsed_ms < 1500  # it did not wait for the nine bytes


@pytest.mark.parametrize(
    "before", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 2]
)
def test_informational_responses_before_the_final_one_are_passed_over(before: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=before + b"HTTP/1.1 202 OK\r\nX: final\r\nContent-Length: 2\r\n\r\nok"))
        fetched = get(receiver.url)
    assert (fetched.verdict, fetched.status, fetched.body) == (ANSWERED, 202, b"ok")
    assert fetched.headers == (("X", "final"), ("Content-Length", "2"))


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\n", b"abcde"),
        (b"\r\nabcde", b"abcde"),
        (b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nabcde", b"abcde"),
        (b"Content-Length: 5\r\nContent-Length: 3\r\n\r\nabcde", b"abcde"),
        (b"Content-Length: -5\r\n\r\nabcde", b"abcde"),
    ],
)
def test_a_body_ends_where_the_head_says(rest: bytes, body: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=OK + rest, close=True))
        fetched = get(receiver.url)
    assert (fetched.verdict, fetched.body, fetched.body_complete, fetched.error) == (ANSWERED, body, True, "")


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\nshort",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nshort",
        b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ],
)
def test_a_broken_body_never_changes_what_was_answered_and_is_not_called_whole(rest: bytes) -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=OK + rest, close=True))
        fetched = get(receiver.url)
    assert (fetched.verdict, fetched.status, fetched.body_complete) == (ANSWERED, 200, False)
    assert fetched.error == "The response body was cut short."


def test_a_body_that_drips_beyond_the_deadline_is_left_at_the_deadline() -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(raw=OK + b"Content-Length: 99\r\n\r\nhalf"))
        stalled = get(receiver.url, timeout_ms=DEADLINE_MS)
        receiver.answers.append(Answer(raw=OK + b"Content-Length: 999\r\n\r\n" + b"x" * 999, drip=0.02))
        dripped = get(receiver.url, timeout_ms=1500)
    assert (stalled.verdict, stalled.status, stalled.body, stalled.body_complete) == (ANSWERED, 200, b"half", False)
    assert "not complete after" in stalled.error
    assert (dripped.verdict, dripped.status, dripped.body_complete) == (ANSWERED, 200, False)
    assert "not complete after" in dripped.error


def test_of_a_long_body_16_kib_are_kept_and_reading_stops_at_256_kib() -> None:
    with Receiver() as receiver:
        receiver.answers.append(Answer(body=b"b" * 200_000))
        kept = get(receiver.url)
        receiver.answers.append(Answer(body=b"c" * 50_000_000))
        cut = get(receiver.url)
    assert (kept.body, kept.body_complete, kept.error) == (b"b" * BODY_KEPT, False, "")
    assert (cut.verdict, cut.status, cut.body, cut.body_complete) == (ANSWERED, 200, b"c" * BODY_KEPT, False)
    assert "longer than 256 KiB" in cut.error


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_compressed_body_is_never_inflated(framing: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    size = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(bomb)
    with Receiver() as receiver:
        if framing == "length":
            receiver.answers.append(Answer(headers=(("Content-Encoding", "gzip"),), body=bomb))
        else:
            receiver.answers.append(Answer(raw=OK + b"Content-Encoding: gzip\r\n" + size + bomb + b"\r\n0\r\n\r\n"))
        fetched = get(receiver.url)
    assert (fetched.verdict, fetched.body) == (ANSWERED, bomb[:BODY_KEPT])


# Proven not sent


def test_a_refused_connection_is_not_sent() -> None:
    fetched = get(f"http://127.0.0.1:{closed_port()}/")
    assert (fetched.verdict, fetched.status) == (NOT_SENT, None)
    assert fetched.error == "The connection could not be made: Connection refused."
    assert fetched.evidence.bytes_offered == fetched.evidence.sends == 0


def test_the_next_address_is_tried_when_one_cannot_be_reached() -> None:
    with Receiver() as receiver:
        fetched = get(f"http://two.customer.com:{receiver.port}/", look_up=lambda _: ("127.0.0.9", *HERE))
    assert (fetched.verdict, fetched.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")


def test_a_connection_that_takes_too_long_is_not_sent() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = []
        for _ in range(4):  # a full backlog drops what knocks
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
            fillers.append(filler)
        fetched = get(f"http://127.0.0.1:{deaf.getsockname()[1]}/", timeout_ms=3000, connect_timeout_ms=300)
        for filler in fillers:
            filler.close()
    assert fetched.verdict == NOT_SENT
    assert fetched.error.startswith("No connection after")
    assert fetched.evidence.elapsed_ms < 1500


def test_a_reset_while_the_body_is_half_sent_is_not_sent() -> None:
    with Receiver(before_body=lambda _: Answer(delay=0.1, reset_before_answer=True)) as receiver:
        fetched = post(receiver.url, BIG)
        assert receiver.requests == []
    assert fetched.verdict == NOT_SENT
    assert 0 < fetched.evidence.body_bytes_written < len(BIG)


def test_a_refusal_before_the_body_was_complete_is_not_sent_and_keeps_its_status() -> None:
    with Receiver(before_body=lambda _: Answer(413)) as receiver:
        fetched = post(receiver.url, BIG * 4)
        assert receiver.requests == []
    assert (fetched.verdict, fetched.status) == (NOT_SENT, 413)
    assert fetched.error == "The receiver answered 413 before the request was complete."


@pytest.mark.parametrize(
    ("url", "headers", "why"),
    [
        ("https://ok.customer.com@127.0.0.1/", HEADERS, "user name"),
        ("ftp://127.0.0.1/", HEADERS, "https://"),
        ("http://127.0.0.1/ x", HEADERS, "spaces"),
        ("http://127.0.0.1/", (("X-A", "1\r\nX-B: 2"),), "printable ASCII"),
        ("http://127.0.0.1/", (("X-A", "1\n"),), "printable ASCII"),
        ("http://127.0.0.1/", (("Host", "elsewhere"),), "set by the transport"),
    ],
)
def test_what_may_not_be_sent_is_refused_before_anything_is_opened(
    url: str, headers: tuple[tuple[str, str], ...], why: str
) -> None:
    fetched = fetch("GET", url, headers, timeout_ms=1000, policy=LOOPBACK)
    assert (fetched.verdict, fetched.status, fetched.evidence.sends) == (NOT_SENT, None, 0)
    assert why in fetched.error


# Unknown


@pytest.mark.parametrize(
    "answer",
    [
        Answer(hang=True),
        Answer(close_before_answer=True),
        Answer(reset_before_answer=True),
        Answer(raw=b"HT", close=True),
        Answer(raw=b"HTTP/1.1 200", close=True),
        Answer(raw=OK, close=True),
        Answer(raw=OK + b"X: 1\r\n", close=True),
        Answer(raw=OK + b"X: 1\r\n", reset=True),
        Answer(raw=OK + b"X: 1\r\n"),
        Answer(raw=b"HTTP/1.1 100 Continue\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 103 Early Hints\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 101 Switching\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 2000 X\r\nContent-Length: 0\r\n\r\n", close=True),
        Answer(raw=b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 20 X\r\n\r\n", close=True),
        Answer(raw=b"HTTP/1.1 099 X\r\n\r\n", close=True),
        Answer(raw=b"ICY 200 OK\r\n\r\n"),
        Answer(raw=b"garbage\r\n\r\n"),
        Answer(raw=OK + b"no colon\r\n\r\n"),
        Answer(raw=OK + b"X: \0\r\n\r\n"),
        Answer(raw=OK + b"X: %s\r\n" % (b"y" * 900) * 80 + b"\r\n", close=True),
        Answer(raw=OK + b"X: %s\r\n\r\n" % (b"y" * 400_000)),
        Answer(raw=OK + b"X: 1\r\n" * 20_000),
        Answer(raw=b"HTTP/1.1 103 Early\r\n\r\n" * 20_000),
        Answer(raw=OK + b"Content-Length: 0\r\n\r\n", drip=0.1),
    ],
)
def test_without_a_complete_head_nobody_can_say(answer: Answer) -> None:
    with Receiver(lambda _: answer) as receiver:
        fetched = post(receiver.url, timeout_ms=DEADLINE_MS)
        assert len(receiver.requests) == receiver.connections == 1  # and never a second copy
    assert (fetched.verdict, fetched.status) == (UNKNOWN, None)
    assert fetched.evidence.request_complete
    assert fetched.evidence.elapsed_ms < DEADLINE_MS + 300
    assert fetched.error.endswith(".")


def test_a_hundred_header_lines_more_than_the_library_likes_are_an_answer() -> None:
    with Receiver(lambda _: Answer(headers=tuple((f"X-{at}", "1") for at in range(200)), body=b"ok")) as receiver:
        fetched = get(receiver.url)
    assert (fetched.verdict, len(fetched.headers), fetched.body) == (ANSWERED, 201, b"ok")


def test_a_2xx_before_the_request_was_complete_is_unknown() -> None:
    with Receiver(before_body=lambda _: Answer(200, close=True), receive_buffer=65536) as receiver:
        fetched = post(receiver.url, BIG)
        assert receiver.requests == []
    assert (fetched.verdict, fetched.status) == (UNKNOWN, 200)
    assert not fetched.evidence.request_complete


# TLS


def test_name_sni_and_certificate_are_those_of_the_url(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    asked: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    with Receiver(lambda _: Answer(body=b"ok"), tls=context) as receiver:
        url = f"https://hooks.customer.com:{receiver.port}/"
        fetched = get(url, ca_file=trusted, look_up=lambda _: HERE)
    assert (fetched.verdict, fetched.status, fetched.body, fetched.error) == (ANSWERED, 200, b"ok", "")
    assert receiver.requests[0].headers["host"] == f"hooks.customer.com:{receiver.port}"
    assert asked == ["hooks.customer.com"]


@pytest.mark.parametrize("wrong", ["name", "issuer"])
def test_a_wrong_certificate_is_refused_and_nothing_is_sent(tmp_path: Path, wrong: str) -> None:
    context, trusted = certificate(tmp_path, "other.customer.com" if wrong == "name" else "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        url = f"https://hooks.customer.com:{receiver.port}/"
        fetched = get(url, ca_file=trusted if wrong == "name" else None, look_up=lambda _: HERE)
        assert receiver.requests == []
    assert (fetched.verdict, fetched.evidence.bytes_offered) == (NOT_SENT, 0)
    assert fetched.error.startswith("The receiver's certificate was not accepted: ")


@pytest.mark.parametrize("how", ["hang", "close", "reset"])
def test_a_handshake_that_fails_is_not_sent(how: str) -> None:
    with Receiver(on_accept=lambda _: how) as receiver:
        fetched = get(f"https://127.0.0.1:{receiver.port}/", timeout_ms=DEADLINE_MS)
    assert (fetched.verdict, fetched.status) == (NOT_SENT, None)
    assert fetched.error


def test_tls_to_a_plain_port_is_not_sent() -> None:
    def speak(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Plain\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        speaker = threading.Thread(target=speak, args=(listener,))
        speaker.start()
        fetched = get(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        speaker.join(5)
    assert fetched.verdict == NOT_SENT
    assert fetched.error.startswith("The TLS handshake failed: ")


def test_a_hang_and_a_drip_over_tls_end_at_the_deadline(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        receiver.answers.extend([Answer(hang=True), Answer(drip=0.1, body=b"x" * 99)])
        for _ in range(2):
            url = f"https://hooks.customer.com:{receiver.port}/"
            fetched = post(url, ca_file=trusted, look_up=lambda _: HERE, timeout_ms=DEADLINE_MS)
            assert (fetched.verdict, fetched.status) == (UNKNOWN, None)
            assert fetched.error.startswith("No complete answer after")
            assert fetched.evidence.elapsed_ms < DEADLINE_MS + 300


# The environment and the egress policy


def test_nothing_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    context, trusted = certificate(tmp_path, "hooks.customer.com")
    with Receiver() as proxy, Receiver() as receiver, Receiver(tls=context) as secure:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.upper(), proxy.url)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            monkeypatch.setenv(name, trusted)
        get(receiver.url)
        url = f"https://hooks.customer.com:{secure.port}/"
        assert get(url, look_up=lambda _: HERE).verdict == NOT_SENT  # what the environment trusts is not trusted
        assert get(url, look_up=lambda _: HERE, ca_file=trusted).verdict == ANSWERED
    assert proxy.connections == 0
    assert "authorization" not in receiver.requests[0].headers
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    "addresses",
    [("169.254.169.254",), ("10.0.0.5",), ("::1",), ("127.0.0.1", "10.0.0.5"), ("93.184.216.34", "::ffff:10.0.0.5")],
)
def test_a_name_with_one_address_that_may_not_be_called_is_not_called_at_all(addresses: tuple[str, ...]) -> None:
    with Receiver() as receiver:
        fetched = get(f"http://mixed.customer.com:{receiver.port}/", look_up=lambda _: addresses)
        assert receiver.connections == 0
    assert fetched.verdict == NOT_SENT
    assert fetched.error.endswith("may not be called.")


def test_without_permission_an_address_in_the_url_is_refused() -> None:
    with Receiver() as receiver:
        fetched = get(receiver.url, policy=EgressPolicy())
        assert receiver.connections == 0
    assert (fetched.verdict, fetched.evidence.sends) == (NOT_SENT, 0)
    assert fetched.error == f"The address 127.0.0.1 port {receiver.port} may not be called."


def test_a_name_that_changes_its_address_is_looked_up_once_and_the_vetted_one_is_called() -> None:
    answers = iter([HERE, ("127.0.0.66",), ("127.0.0.66",)])
    asked: list[str] = []

    def look_up(host: str) -> tuple[str, ...]:
        asked.append(host)
        return next(answers)

    only = EgressPolicy(allow=[ipaddress.ip_network("127.0.0.1/32")])
    with Receiver() as receiver:
        fetched = get(f"http://rebind.customer.com:{receiver.port}/", policy=only, look_up=look_up)
    assert asked == ["rebind.customer.com"]
    assert (fetched.verdict, fetched.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")


def test_the_peer_is_judged_once_more_when_it_is_connected() -> None:
    class Changing(EgressPolicy):
        """Its rules change between the look-up and the connection."""

        asked = 0

        def allows(self, address: str, port: int, *, plain: bool = False) -> bool:
            self.asked += 1
            return self.asked == 1

    with Receiver() as receiver:
        policy = Changing()
        fetched = get(receiver.url, policy=policy)
        assert receiver.requests == []
    assert policy.asked == 2
    assert (fetched.verdict, fetched.evidence.sends) == (NOT_SENT, 0)
    assert fetched.error.endswith("may not be called.")


def test_a_name_server_that_is_silent_costs_no_more_than_the_time_allowed() -> None:
    answered = threading.Event()

    def look_up(_: str) -> tuple[str, ...]:
        answered.wait(20)
        return HERE

    fetched = get("http://slow.customer.com/", timeout_ms=400, look_up=look_up)
    answered.set()
    assert (fetched.verdict, fetched.error) == (NOT_SENT, "The host name was not resolved in time.")


def test_a_name_that_does_not_resolve_is_not_sent() -> None:
    def look_up(_: str) -> tuple[str, ...]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    fetched = get("http://nowhere.customer.com/", look_up=look_up)
    assert fetched.verdict == NOT_SENT
    assert fetched.error == "The host name could not be resolved: Name or service not known."


def test_no_descriptor_and_no_second_request_is_left_behind() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def answer(received: Received) -> Answer:
        return Answer(hang=True) if received.path == "/hang" else Answer(body=b"x" * 300_000)

    with Receiver(answer) as receiver:
        get(receiver.url)
        before = count()
        for path in ("", "hang", "", "hang"):
            get(receiver.url + path, timeout_ms=200)
            get(f"http://127.0.0.1:{closed_port()}/")
        receiver.wait_for(5)
        mine = before + len(receiver._open)  # the other end of each connection is in this process too
        assert count() <= mine + 1
