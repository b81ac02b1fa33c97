"""What Relay sends itself cannot be chosen for an endpoint, and goes out once."""

from __future__ import annotations

import pytest

from deliveries.models import Endpoint
from deliveries.rules import columns
from deliveries.rules.broken import RuleBroken
from tests.authorization.conftest import Deliver
from tests.receiver import Receiver
from tests.support.deliveries import endpoint, events, submitted

pytestmark = pytest.mark.usefixtures("emptied")

NEGOTIABLE = {"accept"}
"""What the transport sends only when nobody chose another."""


def test_every_header_of_a_request_is_reserved(tenant: str, deliver: Deliver) -> None:
    with Receiver() as receiver:
        endpoint(tenant, receiver.url)
        (one,) = submitted(events(tenant))
        deliver(lambda: one.status == "succeeded", "it was delivered")
    sent = set(receiver.requests[0].headers) - NEGOTIABLE
    assert {"user-agent", "content-type", "webhook-id", "host", "traceparent"} <= sent
    for name in sent:
        with pytest.raises(RuleBroken):
            columns.headers({name.title(): "x"})


def test_one_that_was_saved_before_its_name_was_reserved_does_not_go_out_beside_ours(
    tenant: str, deliver: Deliver
) -> None:
    with Receiver() as receiver:
        row, _ = endpoint(tenant, receiver.url, headers={"X-Plain": "seen"})
        Endpoint.objects.filter(pk=row.pk).update(headers={"User-Agent": "Mine", "X-Plain": "seen", "Accept": "x/y"})
        (one,) = submitted(events(tenant))
        deliver(lambda: one.status == "succeeded", "it was delivered")
    headers = receiver.requests[0].headers  # of two with one name it has the last, and the endpoint's come last
    assert headers["user-agent"].startswith("Relay")
    assert [headers[name] for name in ("x-plain", "accept")] == ["seen", "x/y"]
