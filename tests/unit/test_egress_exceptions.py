"""What settings permit and refuse beside the rules: denied networks, our own listeners, NAT64, hosts and ports."""

from __future__ import annotations

import socket
import time
from ipaddress import ip_address, ip_network

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries.egress import DEFAULT_PORTS, EgressPolicy, UrlRefused, Why

_PUBLIC = EgressPolicy()
_OWN = EgressPolicy(
    [ip_network("0.0.0.0/0"), ip_network("::/0")],
    own={
        (None, 8000): "Relay itself",
        (None, 5432): "PostgreSQL",
        (ip_address("10.0.0.7"), 5432): "PostgreSQL",
    },
)


def _refused(policy: EgressPolicy, url: str) -> tuple[Why, str]:
    with pytest.raises(UrlRefused) as caught:
        policy.check_url(url)
    assert caught.value.reason == str(caught.value)
    assert caught.value.reason.endswith(".")
    return caught.value.why, caught.value.reason


# What is refused even inside an allowed network


def test_a_denied_network_is_refused_in_every_spelling_whatever_is_allowed() -> None:
    policy = EgressPolicy([ip_network("0.0.0.0/0"), ip_network("::/0")], deny=[ip_network("10.0.0.0/24")], nat64=True)
    for address in ("10.0.0.5", "::ffff:10.0.0.5", "64:ff9b::10.0.0.5"):
        assert policy.why_not(address, 443) == "RELAY_EGRESS_DENY contains it"
        assert not policy.allows(address, 443)
    assert policy.allows("10.0.1.5", 443)
    assert _refused(policy, "https://10.0.0.5/") == (
        Why.ADDRESS,
        "This address may not be called: RELAY_EGRESS_DENY contains it.",
    )


def test_a_public_network_can_be_denied() -> None:
    policy = EgressPolicy(deny=[ip_network("8.8.8.0/24"), ip_network("2606:2800::/32")])
    assert not policy.allows("8.8.8.8", 443)
    assert not policy.allows("2606:2800:220:1:248:1893:25c8:1946", 443)
    assert policy.allows("8.8.4.4", 443)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"])  # noqa: S104
def test_our_own_listener_is_refused_at_every_address_that_leads_to_this_machine(address: str) -> None:
    assert _OWN.why_not(address, 8000) == "Relay itself listens there"
    assert not _OWN.allows(address, 8000)
    assert not _OWN.allows(address, 8000, plain=True)
    assert _OWN.allows(address, 8001)


def test_our_own_listener_is_refused_at_every_address_of_an_interface() -> None:
    found = [one.address for each in psutil.net_if_addrs().values() for one in each if one.family == socket.AF_INET]
    assert found
    assert [address for address in found if _OWN.allows(address, 8000)] == []


def test_the_same_port_of_another_machine_is_not_ours() -> None:
    assert _OWN.allows("192.0.2.77", 8000)
    assert EgressPolicy(ports=[8000], own=_OWN.own).allows("8.8.8.8", 8000)


def test_a_server_that_is_named_by_its_address_is_refused_there_too() -> None:
    assert _OWN.why_not("10.0.0.7", 5432) == "PostgreSQL listens there"
    assert _OWN.why_not("::ffff:10.0.0.7", 5432) == "PostgreSQL listens there"
    assert _OWN.allows("10.0.0.7", 5433)
    assert _OWN.allows("10.0.0.8", 5432)


def test_our_own_listener_is_refused_when_saved_and_the_reason_says_whose_it_is() -> None:
    for url in ("http://127.0.0.1:8000/", "https://[::1]:8000/", "http://10.0.0.7:5432/"):
        why, reason = _refused(_OWN, url)
        assert why == Why.ADDRESS
        assert reason.endswith(" listens there.")
    assert _refused(_OWN, "http://localhost:8000/") == (
        Why.LOCALHOST,
        "localhost may not be called at port 8000: Relay itself listens there.",
    )
    _OWN.check_url("http://localhost:8001/")


def test_an_address_that_came_to_this_machine_is_ours_a_while_later(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = EgressPolicy([ip_network("0.0.0.0/0")], own=_OWN.own)
    assert policy.allows("192.0.2.77", 8000)
    policy.own[ip_address("192.0.2.77"), 8000] = "as if an interface had it now"
    assert policy.allows("192.0.2.77", 8000)
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert not policy.allows("192.0.2.77", 8000)


# NAT64


def test_behind_dns64_an_address_is_judged_by_the_ipv4_address_inside() -> None:
    policy = EgressPolicy(nat64=True)
    assert policy.allows("64:ff9b::808:808", 443)
    assert not policy.allows("64:ff9b::808:808", 22)
    assert not policy.allows("64:ff9b::808:808", 80, plain=True)
    for address in ("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:5", "64:ff9b:1::808:808", "::ffff:8.8.8.8"):
        assert not policy.allows(address, 443), address
    assert _PUBLIC.why_not("64:ff9b::808:808", 443) == "it leads through NAT64, which RELAY_EGRESS_NAT64=on permits"


# Names and ports by setting


def test_a_listed_host_is_excused_from_the_rules_for_names_and_from_nothing_else() -> None:
    policy = EgressPolicy(hosts=["hooks.internal", "*.Svc.cluster.local.", "db"])
    for url in ("https://hooks.internal/", "https://HOOKS.internal./", "https://a.b.svc.cluster.local/", "https://db/"):
        policy.check_url(url)
    for url, why in (
        ("https://other.internal/", Why.INTERNAL),
        ("https://sub.hooks.internal/", Why.INTERNAL),
        ("https://svc.cluster.local/", Why.INTERNAL),
        ("https://xsvc.cluster.local/", Why.INTERNAL),
        ("http://db/", Why.HTTP),
        ("https://db:5432/", Why.PORT),
        ("https://me@db/", Why.USERINFO),
    ):
        assert _refused(policy, url)[0] == why, url
    assert not policy.allows("10.0.0.5", 443)


@pytest.mark.parametrize(
    "pattern", ["*", "*.", "a b", "https://db", "127.0.0.1", "0x7f", "-x.internal", "a.*.b", "é.de"]
)
def test_what_is_no_host_name_cannot_be_listed(pattern: str) -> None:
    with pytest.raises(ValueError, match="must be host names"):
        EgressPolicy(hosts=[pattern])


def test_more_ports_may_be_called() -> None:
    policy = EgressPolicy(ports=DEFAULT_PORTS | {3000})
    policy.check_url("https://ok.customer.com:3000/")
    assert policy.allows("8.8.8.8", 3000)
    assert not policy.allows("8.8.8.8", 3001)


@given(st.ip_addresses(), st.sampled_from([80, 443, 22, 8000]), st.booleans())
def test_what_is_remembered_is_what_was_judged(address: object, port: int, plain: bool) -> None:
    for policy in (_PUBLIC, _OWN):
        judged = policy.why_not(str(address), port, plain=plain) is None
        assert policy.allows(str(address), port, plain=plain) is judged
        assert policy.allows(str(address), port, plain=plain) is judged
