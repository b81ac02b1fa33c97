"""What is told about a URL when an endpoint is saved: what its name means at the moment."""

from __future__ import annotations

import socket
import threading
from ipaddress import ip_network

import pytest
from django.test import override_settings

from deliveries.egress import EgressPolicy
from deliveries.reachability import preview
from deliveries.transport.lookups import Lookups
from tests.transports import LOOPBACK

PUBLIC = EgressPolicy()
URL = "https://hooks.customer.com/path"


def advice(*addresses: str, url: str = URL, policy: EgressPolicy = PUBLIC) -> str | None:
    return preview(url, policy=policy, lookups=Lookups(lambda host: addresses))


def test_nothing_is_said_about_a_name_that_may_be_called() -> None:
    assert advice("93.184.216.34") is None
    assert advice("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946") is None


def test_an_address_that_may_not_be_called_is_named_with_the_reason() -> None:
    assert advice("10.0.0.5") == (
        "At this moment the host hooks.customer.com resolves to 10.0.0.5, which may not be called: it is not a public "
        "address, and RELAY_EGRESS_ALLOW does not contain it."
    )


def test_one_bad_address_among_good_ones_is_named() -> None:
    said = advice("93.184.216.34", "127.0.0.1")
    assert said is not None
    assert "resolves to 2 addresses, of which 127.0.0.1 may not be called, and so none of them is: " in said


@pytest.mark.parametrize(
    "url, policy, address, reason",
    [
        (
            "http://a.com/",
            EgressPolicy([ip_network("10.0.0.0/8")]),
            "93.184.216.34",
            "plain http is permitted only to ",
        ),
        ("https://a.com:9000/", EgressPolicy([ip_network("10.0.0.0/8")]), "93.184.216.34", "port 9000 is not one of "),
        (URL, EgressPolicy(deny=[ip_network("93.184.0.0/16")]), "93.184.216.34", "RELAY_EGRESS_DENY contains it."),
        (URL, PUBLIC, "64:ff9b::808:808", "it leads through NAT64, which RELAY_EGRESS_NAT64=on permits."),
        (
            URL,
            EgressPolicy(LOOPBACK.allow, own={(None, 443): "Relay itself"}),
            "127.0.0.1",
            "Relay itself listens there.",
        ),
    ],
)
def test_each_reason_says_which_setting_decides(url: str, policy: EgressPolicy, address: str, reason: str) -> None:
    said = advice(address, url=url, policy=policy)
    assert said is not None
    assert reason in said
    assert said.endswith(".")


def test_what_could_be_called_inside_an_allowed_network_is_not_spoken_of() -> None:
    policy = EgressPolicy([ip_network("10.0.0.0/8")])
    assert advice("10.0.0.5", url="http://a.com:9000/", policy=policy) is None


def test_a_name_without_an_address_is_spoken_of() -> None:
    def look_up(host: str) -> tuple[str, ...]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert preview(URL, policy=PUBLIC, lookups=Lookups(look_up)) == (
        "At this moment the host hooks.customer.com cannot be called. The host name could not be resolved: "
        "Name or service not known."
    )


def test_silent_name_servers_are_spoken_of_in_time() -> None:
    release = threading.Event()

    def look_up(host: str) -> tuple[str, ...]:
        release.wait(30)
        return ("93.184.216.34",)

    said = preview(URL, policy=PUBLIC, lookups=Lookups(look_up), seconds=0.1)
    release.set()
    assert said == (
        "At this moment the host hooks.customer.com cannot be looked up: its name servers gave no answer in time."
    )


def test_addresses_and_localhost_are_not_looked_up() -> None:
    def look_up(host: str) -> tuple[str, ...]:
        raise AssertionError(host)

    for url in ("http://127.0.0.1:9000/", "http://localhost:9000/"):
        assert preview(url, policy=LOOPBACK, lookups=Lookups(look_up)) is None


@override_settings(RELAY_EGRESS_ALLOW=())
def test_a_url_that_may_not_even_be_saved_gets_that_reason() -> None:
    assert preview("https://10.0.0.5/") == (
        "An IP address is allowed only inside the networks of RELAY_EGRESS_ALLOW; use a host name."
    )
