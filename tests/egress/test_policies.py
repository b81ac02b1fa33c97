"""What one policy opened is no way around another, and our own listeners are nobody's receivers."""

from __future__ import annotations

import ipaddress

import pytest

from deliveries.egress import EgressPolicy
from tests.egress.senders import KINDS, Sender
from tests.receiver import Receiver
from tests.transports import LOOPBACK

STRICT = EgressPolicy()
ELSEWHERE = EgressPolicy([ipaddress.ip_network("10.0.0.0/8")])
DENIED = EgressPolicy(LOOPBACK.allow, deny=[ipaddress.ip_network("127.0.0.1/32")])

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@pytest.mark.parametrize("stricter", [STRICT, ELSEWHERE, DENIED], ids=["strict", "elsewhere", "denied"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "hooks.customer.com"])
def test_a_connection_that_one_policy_opened_is_not_used_under_a_stricter_one(
    kind: str, stricter: EgressPolicy, host: str
) -> None:
    with Receiver() as receiver:
        url = f"http://{host}:{receiver.port}/"
        sender = Sender(kind, LOOPBACK, look_up=lambda _: ("127.0.0.1",))
        assert sender.send(url).verdict == "answered"
        sender.policy = stricter
        for _ in range(2):
            sent = sender.send(url)
            assert (sent.verdict, sent.bytes_offered) == ("not_sent", 0)
            assert sent.error.endswith("may not be called.")
        assert (len(receiver.requests), receiver.connections) == (1, 1)
        sender.policy = LOOPBACK
        assert sender.send(url).verdict == "answered"
        sender.close()


def test_the_connection_was_there_to_be_used() -> None:
    with Receiver() as receiver:
        sender = Sender("curl", LOOPBACK)
        sent = [sender.send(receiver.url) for _ in range(3)]
        sender.close()
        assert [one.reused for one in sent] == [False, True, True]


@each_kind
def test_one_tenants_name_is_no_way_over_the_connection_of_anothers(kind: str) -> None:
    """Both names mean the same address and port; only one of them has another address besides."""
    with Receiver() as receiver:

        def look_up(host: str) -> tuple[str, ...]:
            return ("127.0.0.1",) if host == "good.customer.com" else ("127.0.0.1", "10.0.0.5")

        sender = Sender(kind, LOOPBACK, look_up=look_up)
        assert sender.send(f"http://good.customer.com:{receiver.port}/").verdict == "answered"
        sent = sender.send(f"http://mixed.attacker.net:{receiver.port}/")
        assert (sent.verdict, sent.error) == (
            "not_sent",
            f"The address 10.0.0.5 port {receiver.port} may not be called.",
        )
        assert sender.send(f"http://good.customer.com:{receiver.port}/").verdict == "answered"
        sender.close()
        assert len(receiver.requests) == 2


@each_kind
@pytest.mark.parametrize("host", ["127.0.0.1", "127.4.4.4", "localhost", "[::ffff:127.0.0.1]", "hooks.customer.com"])
def test_our_own_listener_is_not_called_though_its_network_is_allowed(kind: str, host: str) -> None:
    with Receiver() as ours, Receiver() as beside:
        policy = EgressPolicy(LOOPBACK.allow, own={(None, ours.port): "Relay itself"})
        sender = Sender(kind, policy, look_up=lambda _: ("127.0.0.1",))
        sent = sender.send(f"http://{host}:{ours.port}/")
        assert (sent.verdict, sent.bytes_offered) == ("not_sent", 0)
        assert sent.error.endswith(f"port {ours.port} may not be called.")
        assert sender.send(beside.url).verdict == "answered"
        sender.close()
        assert (ours.connections, len(beside.requests)) == (0, 1)
