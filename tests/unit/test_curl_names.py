"""Host names: looked up outside of the transfers, judged, pinned, and never mixed up."""

from __future__ import annotations

import threading

from deliveries.outcomes import ANSWERED, NOT_SENT
from deliveries.transport.curl import CurlTransport
from tests.receiver import Receiver
from tests.transports import LOOPBACK, collect, request, send


def test_one_bad_record_refuses_the_whole_name() -> None:
    with Receiver() as receiver:
        transport = CurlTransport(LOOPBACK, look_up=lambda host: ("127.0.0.1", "10.0.0.5"))
        outcome = send(transport, f"http://mixed.attacker.net:{receiver.port}/")
        transport.close()
        assert (outcome.verdict, receiver.connections) == (NOT_SENT, 0)
    assert outcome.error == f"The address 10.0.0.5 port {receiver.port} may not be called."


def test_a_name_is_looked_up_once_pinned_and_kept_in_the_host_header() -> None:
    asked: list[str] = []

    def look_up(host: str) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",)

    with Receiver() as receiver:
        transport = CurlTransport(LOOPBACK, look_up=look_up)
        for key in range(20):
            transport.submit(request(key, f"http://Hooks.customer.com:{receiver.port}/"))
        assert {outcome.verdict for outcome in collect(transport, 20)} == {ANSWERED}
        transport.close()
        assert {received.headers["host"].lower() for received in receiver.requests} == {
            f"hooks.customer.com:{receiver.port}"
        }
    assert asked == ["hooks.customer.com"]


def test_the_next_address_is_tried_when_one_cannot_be_reached() -> None:
    with Receiver() as receiver:
        transport = CurlTransport(LOOPBACK, look_up=lambda host: ("127.0.0.9", "127.0.0.1"))
        for _ in range(2):
            outcome = send(transport, f"http://two.customer.com:{receiver.port}/")
            assert (outcome.verdict, outcome.evidence.peer) == (ANSWERED, f"127.0.0.1 {receiver.port}")
        transport.close()


def test_slow_name_servers_delay_only_their_own_names() -> None:
    release = threading.Event()

    def look_up(host: str) -> tuple[str, ...]:
        if host.startswith("slow"):
            release.wait(20)
        return ("127.0.0.1",)

    with Receiver() as receiver:
        transport = CurlTransport(LOOPBACK, look_up=look_up)
        for key in range(60):
            url = f"http://slow{key}.customer.com:{receiver.port}/"
            transport.submit(request(100 + key, url, connect_timeout_ms=1500))
        transport.submit(request(1, f"http://fast.customer.com:{receiver.port}/"))
        (first,) = collect(transport, 1)
        assert (first.key, first.verdict) == (1, ANSWERED)
        assert first.evidence.elapsed_ms < 1000
        slow = collect(transport, 60)
        assert {outcome.error for outcome in slow} == {"The host name was not resolved in time."}
        assert {outcome.verdict for outcome in slow} == {NOT_SENT}
        release.set()
        transport.close()


def test_a_request_never_goes_to_the_address_of_a_name_that_its_key_waited_for_before() -> None:
    """The same key again, for another name, while the first look-up goes on."""
    release = {"first.customer.com": threading.Event(), "second.customer.com": threading.Event()}
    addresses = {"first.customer.com": "127.0.0.1", "second.customer.com": "127.0.0.2"}

    def look_up(host: str) -> tuple[str, ...]:
        release[host].wait(20)
        return (addresses[host],)

    with Receiver() as receiver:
        transport = CurlTransport(LOOPBACK, look_up=look_up)
        transport.submit(request(1, f"http://first.customer.com:{receiver.port}/"))
        (stopped,) = transport.abort([1])
        transport.submit(request(1, f"http://second.customer.com:{receiver.port}/"))
        release["first.customer.com"].set()
        assert transport.poll(0.3) == []
        release["second.customer.com"].set()
        (outcome,) = collect(transport, 1)
        transport.close()
        assert (stopped.verdict, outcome.verdict) == (NOT_SENT, NOT_SENT)
        assert outcome.error == "The connection could not be made: Connection refused."
        assert receiver.connections == 0
