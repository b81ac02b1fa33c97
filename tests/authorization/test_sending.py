"""What an endpoint authenticates with arrives, through a real dispatcher; and nothing is sent without it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from deliveries.endpoints import Changes, update
from deliveries.models import Endpoint
from tests.authorization.conftest import Deliver
from tests.authorization.servers import BEARER, KEPT, PASSWORD, secrets_of
from tests.receiver import Receiver
from tests.support.certificates import Authority
from tests.support.deliveries import endpoint, events, submitted

pytestmark = pytest.mark.usefixtures("emptied")


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (
            {"kind": "basic", "username": "relay", "password": PASSWORD},
            f"Basic {base64.b64encode(f'relay:{PASSWORD}'.encode()).decode()}",
        ),
        ({"kind": "bearer", "token": BEARER}, f"Bearer {BEARER}"),
    ],
    ids=["basic", "bearer"],
)
def test_a_password_or_a_token_arrives_in_the_authorization_header(
    auth: dict[str, Any], header: str, tenant: str, deliver: Deliver
) -> None:
    with Receiver() as receiver:
        endpoint(tenant, receiver.url, auth=auth)
        (one,) = submitted(events(tenant))
        deliver(lambda: one.status == "succeeded", "it was delivered")
    (request,) = receiver.requests
    assert request.headers["authorization"] == header
    assert not secrets_of(repr(one.rows()) + repr([vars(attempt) for attempt in one.attempts]))


def test_secret_headers_arrive_beside_the_others(tenant: str, deliver: Deliver) -> None:
    with Receiver() as receiver:
        endpoint(
            tenant, receiver.url, headers={"X-Plain": "seen"}, secret_headers={"X-Key": KEPT, "Authorization": "x y"}
        )
        (one,) = submitted(events(tenant))
        deliver(lambda: one.status == "succeeded", "it was delivered")
    headers = receiver.requests[0].headers
    assert [headers[name] for name in ("x-plain", "x-key", "authorization")] == ["seen", KEPT, "x y"]
    assert "webhook-signature" in headers


@pytest.mark.parametrize("column", ["auth_sealed", "secret_headers_sealed", "client_key_sealed"])
def test_what_cannot_be_opened_keeps_the_request_from_being_sent_until_it_is_given_again(
    column: str, tenant: str, deliver: Deliver
) -> None:
    client = Authority().sign("relay")
    given: dict[str, Any] = {
        "auth": {"kind": "bearer", "token": BEARER}, "secret_headers": {"X-Key": KEPT},
        "client_certificate": client.certificate, "client_key": client.key,
    }  # fmt: skip
    with Receiver() as receiver:
        row, _ = endpoint(tenant, receiver.url, **given)
        other, _ = endpoint(tenant, receiver.url, types=["another"], **given)
        # Another row's, as if somebody had copied it over.
        Endpoint.objects.filter(pk=row.pk).update(**{column: getattr(other, column)})
        (one,) = submitted(events(tenant))
        deliver(lambda: Endpoint.objects.get(pk=row.pk).blocked_until, "the endpoint is paused")
        assert not receiver.requests
        assert (one.status, one.attempts) == ("prepared", [])
        update(tenant, row.pk, Changes(**given))  # type: ignore[typeddict-item]
        deliver(lambda: one.status == "succeeded", "it was delivered")
    assert len(receiver.requests) == 1
