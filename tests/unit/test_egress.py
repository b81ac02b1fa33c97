from __future__ import annotations

from ipaddress import ip_network

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from deliveries.egress import EgressPolicy, UrlRefused, Why

_PUBLIC = EgressPolicy()
_LOOPBACK = EgressPolicy(allow=[ip_network("127.0.0.0/8")])
_PRIVATE = EgressPolicy(allow=[ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8")])

_GOOD = [
    "https://ok.customer.com/hook",
    "https://ok6.customer.com:8443/hook",
    "https://ok.customer.com",
    "https://ok.customer.com?query=1",
    "HTTPS://OK.customer.com/",
    "https://ok.customer.com./",
    "https://xn--hkyrky-ptac70bc.customer.com/hook",
    "https://ok.customer.com/%0d%0aX",
    # These lead to our own networks, which only the connection can show.
    "https://127.0.0.1.nip.io/",
    "https://rebind.attacker.net/",
]
_BAD = [
    "",
    "https://",
    "ok.customer.com/hook",
    "http://ok.customer.com/",
    "https://xn--n3h.customer.com/hook",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://0x7f.0.0.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://017700000001/",
    "https://127.0.0.1./",
    "https://0/",
    "https://0.0.0.0/",
    "https://[::]/",
    "https://[::1]/",
    "https://[0:0:0:0:0:ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::ffff:0:127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fe80::1%25eth0]/",
    "https://[fd00:ec2::254]/",
    "https://169.254.169.254/latest/meta-data/",
    "https://8.8.8.8/",
    "https://localhost/",
    "https://localhost./",
    "https://LOCALHOST/",
    "https://sub.localhost/",
    "https://metadata.google.internal/",
    "https://kubernetes.default.svc.cluster.local/",
    "https://db/",
    "https://user:pw@ok.customer.com/",
    "https://@ok.customer.com/",
    "https://ok.customer.com@127.0.0.1/",
    "https://127.0.0.1#@ok.customer.com/",
    "https://ok.customer.com#@127.0.0.1/",
    "https://127.0.0.1\\@ok.customer.com/",
    "https://ok.customer.com\\@127.0.0.1/",
    "https://127.0.0.1%5c@ok.customer.com/",
    "https://127.0.0.1%2f@ok.customer.com/",
    "https://ok.customer.com%0d%0aX-Injected:1/",
    "https://ok.customer.com%00.attacker.net/",
    "https://ok.customer.com/\r\nHost: evil",
    "https://ok.customer.com\n",
    "https://ok.customer.com:22/",
    "https://ok.customer.com:25/",
    "https://ok.customer.com:0/",
    "https://ok.customer.com:65536/",
    "https://ok.customer.com:-1/",
    "https://ok.customer.com:443:80/",
    "https://ok.customer.com:/",
    "https://ok.customer.com:٤٤٣/",
    "https://\uff11\uff12\uff17.\uff10.\uff10.\uff11/",
    "https://①②⑦.⓪.⓪.①/",
    "https://ok。customer。com/",
    "https://[::1/",
    "https://[127.0.0.1]/",
    "https://::1/",
    "https:///etc/passwd",
    "https:/127.0.0.1/",
    "https:127.0.0.1",
    "//127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://ok.customer.com/",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
    "unix:///var/run/docker.sock",
    "javascript:alert(1)",
    "javascript://ok.customer.com/%0aalert(1)",
    " https://ok.customer.com/",
    "https://ok.customer.com/ x",
    f"https://{'a' * 64}.customer.com/",
    f"https://{'.'.join(['a' * 60] * 5)}.com/",
    "https://ok..customer.com/",
    "https://-ok.customer.com/",
    "https://ok.customer.com/#frag",
    f"https://ok.customer.com/{'a' * 2048}",
]
_CALLABLE = ["93.184.216.34", "8.8.8.8", "1.1.1.1", "2606:2800:220:1:248:1893:25c8:1946", "2001:4860:4860::8888"]
_NOT_CALLABLE = [
    "0.0.0.0",  # noqa: S104
    "10.0.0.1", "10.96.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255",
    "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.9", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:7f00:1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "100::1", "2001:0:7f00:1::", "2001:20::1", "2001:db8::1",
    "2002:7f00:1::", "2002:a9fe:a9fe::", "3ffe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%1", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip


def _refused(policy: EgressPolicy, url: str) -> tuple[Why, str]:
    with pytest.raises(UrlRefused) as caught:
        policy.check_url(url)
    assert caught.value.reason == str(caught.value)
    assert caught.value.reason.endswith(".")
    return caught.value.why, caught.value.reason


@pytest.mark.parametrize("url", _GOOD)
def test_an_ordinary_url_may_be_saved(url: str) -> None:
    _PUBLIC.check_url(url)


@pytest.mark.parametrize("url", _BAD)
def test_a_hostile_url_is_refused_when_saved_with_a_reason(url: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        _PUBLIC.check_url(url)
    assert caught.value.reason.endswith(".")


@pytest.mark.parametrize("address", _CALLABLE)
def test_a_public_address_may_be_called(address: str) -> None:
    assert _PUBLIC.allows(address, 443)


@pytest.mark.parametrize("address", _NOT_CALLABLE)
def test_no_special_address_may_be_called_in_any_spelling(address: str) -> None:
    assert not _PUBLIC.allows(address, 443)


@pytest.mark.parametrize("text", ["", "localhost", "ok.customer.com", "127.1", "0x7f000001", "2130706433", "1.2.3.4 "])
def test_what_is_no_numeric_address_is_refused_not_looked_up(text: str) -> None:
    assert not _PUBLIC.allows(text, 443)


def test_a_public_address_is_called_on_the_listed_ports_only() -> None:
    assert [port for port in (22, 25, 80, 443, 6379, 8080, 8443) if _PUBLIC.allows("8.8.8.8", port)] == [
        80,
        443,
        8080,
        8443,
    ]


def test_plain_http_needs_the_setting_or_an_allowed_network() -> None:
    assert not _PUBLIC.allows("8.8.8.8", 80, plain=True)
    assert EgressPolicy(allow_http=True).allows("8.8.8.8", 80, plain=True)
    assert _LOOPBACK.allows("127.0.0.1", 80, plain=True)
    assert not _LOOPBACK.allows("8.8.8.8", 80, plain=True)


def test_an_allowed_network_may_be_called_on_any_port_and_nothing_beside_it() -> None:
    assert _LOOPBACK.allows("127.0.0.1", 9900)
    assert _LOOPBACK.allows("127.8.8.8", 1)
    assert _LOOPBACK.allows("::ffff:127.0.0.1", 9900)
    assert not _LOOPBACK.allows("10.0.0.1", 9900)
    assert not _LOOPBACK.allows("::1", 9900)


def test_an_allowed_network_opens_its_literals_and_localhost_when_saved() -> None:
    for url in (
        "http://127.0.0.1:9900/x",
        "https://127.0.0.1/",
        "http://localhost:9900/",
        "http://[::ffff:127.0.0.1]/",
    ):
        _LOOPBACK.check_url(url)
    for url in ("http://10.0.0.1/", "https://8.8.8.8/", "http://[::1]/", "http://127.1/", "http://sub.localhost/"):
        with pytest.raises(UrlRefused):
            _LOOPBACK.check_url(url)


def test_a_name_may_lead_into_an_allowed_network_so_its_scheme_and_port_are_judged_when_connecting() -> None:
    _PRIVATE.check_url("http://hooks.customer.com:9000/")


def test_a_name_does_not_mean_this_machine_so_loopback_alone_opens_neither_plain_http_nor_other_ports_to_it() -> None:
    why, reason = _refused(_LOOPBACK, "http://hooks.customer.com/")
    assert why == Why.HTTP
    assert reason == (
        "The URL must start with https://: plain http is permitted only to the networks of RELAY_EGRESS_ALLOW "
        "(127.0.0.0/8), or everywhere with RELAY_EGRESS_HTTP=on."
    )
    assert _refused(_LOOPBACK, "https://hooks.customer.com:9000/")[0] == Why.PORT
    EgressPolicy(_LOOPBACK.allow, hosts=["hooks.customer.com"]).check_url("http://hooks.customer.com:9000/")


def test_http_may_be_saved_when_the_setting_allows_it() -> None:
    EgressPolicy(allow_http=True).check_url("http://ok.customer.com/")


def test_the_policy_is_read_from_the_settings() -> None:
    with override_settings(
        RELAY_EGRESS_ALLOW=(ip_network("10.0.0.0/8"),),
        RELAY_EGRESS_DENY=(ip_network("10.9.0.0/16"),),
        RELAY_EGRESS_HOSTS=("hooks.internal",),
        RELAY_EGRESS_HTTP=True,
        RELAY_EGRESS_NAT64=True,
        RELAY_EGRESS_PORTS=frozenset({3000}),
        RELAY_OWN_LISTENERS={(None, 8000): "Relay itself"},
    ):
        policy = EgressPolicy.from_settings()
    assert policy.allows("10.1.2.3", 9)
    assert not policy.allows("10.9.2.3", 9)
    assert policy.allows("8.8.8.8", 80, plain=True)
    assert policy.allows("64:ff9b::808:808", 3000)
    assert policy.own == {(None, 8000): "Relay itself"}
    policy.check_url("https://hooks.internal/")
    assert "10.0.0.0/8" in repr(policy)


@given(st.text(max_size=80))
def test_no_text_makes_the_check_raise_anything_else(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}/", f"https://ok.customer.com{text}"):
        try:
            _PUBLIC.check_url(url)
        except UrlRefused:
            continue


@given(st.ip_addresses(v=4))
def test_no_embedded_spelling_of_an_ipv4_address_gets_past_the_list(address: object) -> None:
    for form in (f"::{address}", f"::ffff:{address}", f"::ffff:0:{address}", f"64:ff9b::{address}"):
        assert not _PUBLIC.allows(form, 443)
