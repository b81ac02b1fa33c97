"""Nothing in the environment of the process sends a request elsewhere, adds to it, or gives its keys away."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from deliveries.egress import EgressPolicy
from tests.egress import namespace
from tests.egress.senders import KINDS, Sender
from tests.receiver import Receiver
from tests.transports import LOOPBACK, certificate

NAME = "hooks.customer.com"
PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")

each_kind = pytest.mark.parametrize("kind", KINDS)


def here(host: str) -> tuple[str, ...]:
    return ("127.0.0.1",)


@each_kind
@pytest.mark.parametrize("no_proxy", [None, "somewhere.else.com", ""])
def test_no_proxy_of_the_environment_is_asked(
    kind: str, no_proxy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path, NAME)
    with Receiver() as proxy, Receiver() as plain, Receiver(tls=context) as secure:
        for variable in PROXIES:
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        for variable in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(variable, raising=False)
            if no_proxy is not None:
                monkeypatch.setenv(variable, no_proxy)
        sender = Sender(kind, LOOPBACK, look_up=here, ca_file=trusted)
        for url in (plain.url, f"http://{NAME}:{plain.port}/", f"https://{NAME}:{secure.port}/"):
            assert sender.send(url).verdict == "answered"
        sender.close()
        assert (len(plain.requests), len(secure.requests), proxy.connections) == (2, 1, 0)


@each_kind
def test_a_proxy_is_no_way_to_an_address_that_may_not_be_called(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for variable in PROXIES:
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        only = EgressPolicy([ipaddress.ip_network("127.0.0.0/8")])
        sender = Sender(kind, only, look_up=lambda host: ("10.0.0.5",))
        for url in ("http://internal.attacker.net/", "http://10.0.0.5/", "https://internal.attacker.net/"):
            sent = sender.send(url)
            assert (sent.verdict, sent.bytes_offered) == ("not_sent", 0)
            assert sent.error.startswith("The address 10.0.0.5 port ")
        sender.close()
        assert proxy.connections == 0


@each_kind
def test_no_login_of_a_netrc_is_sent(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("default login someone password of-theirs\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    with Receiver() as receiver:
        sender = Sender(kind, LOOPBACK, look_up=here)
        for url in (receiver.url, f"http://{NAME}:{receiver.port}/"):
            assert sender.send(url).verdict == "answered"
        sender.close()
        assert [sorted(received.headers.keys() & {"authorization"}) for received in receiver.requests] == [[], []]


@each_kind
def test_no_key_of_a_tls_connection_is_written_to_a_file(kind: str, tmp_path: Path) -> None:
    """In a process of its own: libcurl and Python look for the variable when they first use TLS."""
    keys = tmp_path / "keys"
    assert namespace.play("tls", kind, str(tmp_path), outside=True, SSLKEYLOGFILE=str(keys)) == "answered"
    assert not keys.exists()


@each_kind
def test_no_certificate_of_the_environment_is_trusted(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path, NAME)
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(variable, trusted)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with Receiver(tls=context) as receiver:
        sender = Sender(kind, LOOPBACK, look_up=here)
        sent = sender.send(f"https://{NAME}:{receiver.port}/")
        sender.close()
        assert (sent.verdict, sent.bytes_offered, receiver.requests) == ("not_sent", 0, [])
