"""What is told about endpoints: that one was disabled, and by whom; that it is back, unless a person had closed it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.db import transaction

from deliveries import endpoints
from deliveries.dispatch.telling import tell_endpoints
from deliveries.models import Endpoint, Event
from deliveries.outcomes import ANSWERED, judge
from tests.support.deliveries import endpoint, tenant

pytestmark = pytest.mark.django_db

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def mine(db: None) -> str:
    """A tenant that hears about itself."""
    name = tenant()
    endpoint(name, NOWHERE + "relay", receives="operational")
    return name


def told(tenant_id: str) -> list[tuple[str, dict[str, Any]]]:
    rows = Event.objects.filter(tenant_id=tenant_id).order_by("event_id")
    return [(row.type, json.loads(bytes(row.payload))) for row in rows]


def switch(tenant_id: str, endpoint_id: uuid.UUID, *, on: bool, reason: str = endpoints.BY_REQUEST) -> None:
    assert endpoints.update(tenant_id, endpoint_id, {"enabled": on}, reason=reason) is not None


def closed_by_its_receiver(row: Endpoint) -> None:
    judgement = judge(ANSWERED, 410, ())
    with transaction.atomic():
        tell_endpoints([(row, judgement)])


@pytest.mark.parametrize("why", [endpoints.BY_REQUEST, "The receiver is being rebuilt."])
def test_what_a_person_closed_and_opens_is_not_told_to_have_recovered(mine: str, why: str) -> None:
    row, _ = endpoint(mine, NOWHERE)
    switch(mine, row.endpoint_id, on=False, reason=why)
    switch(mine, row.endpoint_id, on=True)
    ((kind, data),) = told(mine)
    assert (kind, data["by"]) == ("relay.endpoint.disabled", "request")
    assert data["reason"] == why


def test_what_its_receiver_closed_is_told_when_it_is_opened(mine: str) -> None:
    row, _ = endpoint(mine, NOWHERE)
    closed_by_its_receiver(row)
    switch(mine, row.endpoint_id, on=True)
    (closed, opened) = told(mine)
    assert (closed[0], closed[1]["by"]) == ("relay.endpoint.disabled", "receiver")
    assert opened[0] == "relay.endpoint.recovered"
    now = Endpoint.objects.get(pk=row.pk)
    assert (now.disabled_reason, now.disabled_by) == ("", "")


def test_nothing_is_told_where_nobody_listens(db: None) -> None:
    name = tenant()
    row, _ = endpoint(name, NOWHERE)
    closed_by_its_receiver(row)
    assert not Endpoint.objects.get(pk=row.pk).enabled
    assert told(name) == []


def test_the_url_is_told_without_what_may_be_secret(mine: str) -> None:
    row, _ = endpoint(mine, "http://127.0.0.1:9/hooks?token=abc")
    switch(mine, row.endpoint_id, on=False)
    ((_, data),) = told(mine)
    assert data["url"] == "http://127.0.0.1:9/hooks"
