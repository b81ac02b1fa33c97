"""Mutual TLS and private authorities, with real TLS servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from deliveries.endpoints import update
from tests.authorization.conftest import Deliver
from tests.receiver import Receiver
from tests.support.certificates import Authority
from tests.support.deliveries import endpoint, events, submitted

pytestmark = pytest.mark.usefixtures("emptied")


def test_a_receiver_of_a_private_authority_is_trusted_when_its_endpoint_says_so(
    tenant: str, deliver: Deliver, tmp_path: Path
) -> None:
    ours, other = Authority("ours"), Authority("other")
    with Receiver(tls=ours.server(tmp_path)) as receiver:
        row, _ = endpoint(tenant, receiver.url, ca_certificates=other.pem)
        (one,) = submitted(events(tenant))
        deliver(lambda: one.attempts, "the first attempt is on record")
        assert one.attempts[0].verdict == "not_sent"
        assert not receiver.requests
        update(tenant, row.pk, {"ca_certificates": ours.pem})
        deliver(lambda: one.status == "succeeded", "it was delivered")
    assert [attempt.http_status for attempt in one.attempts][-1] == 200


def test_a_private_authority_is_not_trusted_for_another_endpoint(tenant: str, deliver: Deliver, tmp_path: Path) -> None:
    ours = Authority()
    with Receiver(tls=ours.server(tmp_path)) as receiver:
        endpoint(tenant, receiver.url, ca_certificates=ours.pem, types=["a"])
        endpoint(tenant, receiver.url, types=["b"])
        (trusted,) = submitted(events(tenant, type="a"))
        deliver(lambda: trusted.status == "succeeded", "the one with the authority got its delivery")
        # The same address, a moment later: the open connection must not be used.
        (refused,) = submitted(events(tenant, type="b"))
        deliver(lambda: refused.attempts, "the other's attempt is on record")
    assert refused.attempts[0].verdict == "not_sent"
    assert "certificate" in refused.attempts[0].error
    assert len(receiver.requests) == 1


def test_a_receiver_that_demands_a_client_certificate_gets_it(tenant: str, deliver: Deliver, tmp_path: Path) -> None:
    servers, clients = Authority("servers"), Authority("clients")
    client, stranger = clients.sign("relay"), Authority("strangers").sign("relay")
    with Receiver(tls=servers.server(tmp_path, demands=clients)) as receiver:
        row, _ = endpoint(
            tenant,
            receiver.url,
            ca_certificates=servers.pem,
            client_certificate=stranger.certificate,
            client_key=stranger.key,
        )
        (one,) = submitted(events(tenant))
        deliver(lambda: one.attempts, "the attempt with a stranger's certificate is on record")
        assert one.status != "succeeded"
        assert not receiver.requests
        update(tenant, row.pk, {"client_certificate": client.certificate, "client_key": client.key})
        deliver(lambda: one.status == "succeeded", "it was delivered")
    assert len(receiver.requests) == 1
