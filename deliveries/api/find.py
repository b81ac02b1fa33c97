"""Single rows by the id in a path. Malformed, absent and another tenant's look alike: 404."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

from deliveries import ids, naming
from deliveries.api import present
from deliveries.api.errors import invalid_field, not_found
from deliveries.endpoints import living
from deliveries.models import Endpoint, Event
from ledger.identity import MalformedOperationId, parse
from ledger.models import Operation, Task

Row = TypeVar("Row", bound=Model)


def event(tenant_id: str, text: str, *, payload: bool = False) -> Event:
    """The tenant's event of this public id; its payload is only read when it is to be shown."""
    condition = naming.named(text)
    if condition is None:
        raise not_found("event")
    wanted = Event.objects.filter(condition, tenant_id=tenant_id)
    found: Event | None = (wanted if payload else wanted.defer("payload")).first()
    if found is None:
        raise not_found("event")
    return found


def filtered_event(tenant_id: str, text: str) -> UUID:
    """The key of the event that the query parameter `event_id` names; 422 when it cannot be an event's. One that does
    not exist is as any that has no deliveries."""
    condition = naming.named(text)
    if condition is None:
        raise invalid_field("event_id", "cannot be an event's id")
    found = Event.objects.filter(condition, tenant_id=tenant_id).values_list("event_id", flat=True).first()
    return found or UUID(int=0)


def by_id(rows: QuerySet[Row], prefix: str, text: str, name: str) -> Row:
    """The row of the public id `prefix…`, if it is among these; `name` is what the 404 calls it."""
    try:
        key = ids.parse(prefix, text)
    except ids.MalformedId as malformed:
        raise not_found(name) from malformed
    found = rows.filter(pk=key).first()
    if found is None:
        raise not_found(name)
    return found


def endpoint(tenant_id: str, text: str) -> Endpoint:
    """The tenant's endpoint `ep_…`, unless it was deleted."""
    return by_id(living(tenant_id), ids.ENDPOINT, text, "endpoint")


def delivery(tenant_id: str, text: str) -> Task:
    """The tenant's delivery `dlv_…`."""
    rows: QuerySet[Task] = Task.objects.filter(tenant_id=tenant_id)
    return by_id(rows, ids.DELIVERY, text, "delivery")


def operation(tenant_id: str, text: str) -> Operation:
    """The tenant's operation `tenant/run/step/effect_version`."""
    try:
        named = parse(text)
    except MalformedOperationId as malformed:
        raise not_found("operation") from malformed
    found = (
        present.operations_of(tenant_id)
        .filter(run_id=named.run_id, step_id=named.step_id, effect_version=named.effect_version)
        .first()
    )
    if found is None or named.tenant_id != tenant_id:
        raise not_found("operation")
    return found
