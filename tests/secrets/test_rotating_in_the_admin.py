"""The signing secret is replaced in the admin, after a question, and shown once."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from deliveries import rotation
from deliveries.models import Endpoint
from deliveries.signing import key_of, new_secret
from tests.admin.conftest import sign_in
from tests.support.deliveries import endpoint

pytestmark = pytest.mark.usefixtures("emptied")

URL = "http://127.0.0.1:9/"


@pytest.fixture
def administrator(emptied: None) -> Any:
    yield sign_in("root", (), superuser=True)
    LogEntry.objects.all().delete()
    User.objects.all().delete()


def page(one: Endpoint) -> str:
    return f"/admin/deliveries/endpoint/{one.pk}/secret/"


def shown(response: Any) -> str:
    return html.unescape(response.content.decode())


def ring(one: Endpoint) -> tuple[Any, ...]:
    return rotation.secrets_of(Endpoint.objects.get(pk=one.pk), datetime.now(UTC))


def test_it_is_asked_and_then_shown_this_once(administrator: Client, tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    detail = f"/admin/deliveries/endpoint/{one.pk}/change/"
    assert page(one) in administrator.get(detail).content.decode()
    asked = administrator.get(page(one))
    assert asked.status_code == 200
    assert ring(one) == (key_of(first),), "nothing is replaced by looking"
    response = administrator.post(page(one), {"overlap_hours": "24", "signature": "", "secret": ""})
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    secret = response.context["secret"]
    assert secret in shown(response)
    assert ring(one) == (key_of(secret), key_of(first))
    after = administrator.get(detail).content.decode()
    assert secret not in html.unescape(after)
    assert "1 former one signs too" in after
    (entry,) = LogEntry.objects.filter(object_id=str(one.pk))
    assert secret not in entry.change_message


def test_the_public_keys_of_a_pair_are_shown(administrator: Client, tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    response = administrator.post(page(one), {"overlap_hours": "0", "signature": "v1a", "secret": ""})
    key = key_of(response.context["secret"])
    assert str(key.public) in shown(response)
    assert str(key.for_questions().public) in shown(response)
    assert ring(one) == (key,)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"overlap_hours": "721"}, "overlap_hours"),
        ({"overlap_hours": ""}, "overlap_hours"),
        ({"overlap_hours": "1", "secret": "whsec_not-one-at-all"}, "secret"),
        ({"overlap_hours": "1", "signature": "v2"}, "signature"),
        ({"overlap_hours": "1", "secret": new_secret(), "signature": "v1a"}, "signature"),
    ],
)
def test_what_is_wrong_is_shown_at_its_field_and_changes_nothing(
    administrator: Client, tenant: str, given: dict[str, str], field: str
) -> None:
    one, first = endpoint(tenant, URL)
    response = administrator.post(page(one), given)
    assert response.status_code == 422
    assert list(response.context["form"].errors) == [field]
    assert not given.get("secret") or given["secret"] not in shown(response)
    assert ring(one) == (key_of(first),)


def test_a_full_ring_is_said(administrator: Client, tenant: str) -> None:
    one, _ = endpoint(tenant, URL)
    for _ in range(rotation.MOST_FORMER):
        rotation.rotate(one.endpoint_id)
    response = administrator.post(page(one), {"overlap_hours": "24"})
    assert response.status_code == 422
    assert "9 former secrets" in shown(response)


def test_it_needs_the_right_to_change_endpoints(administrator: Client, tenant: str) -> None:
    one, first = endpoint(tenant, URL)
    viewer = sign_in("viewer", ("deliveries.view_endpoint",))
    assert page(one) not in viewer.get(f"/admin/deliveries/endpoint/{one.pk}/change/").content.decode()
    assert viewer.get(page(one)).status_code == 403
    assert viewer.post(page(one), {"overlap_hours": "24"}).status_code == 403
    assert ring(one) == (key_of(first),)
