"""Single rows by the id in a path. Malformed, absent and another tenant's look alike: 404."""

from __future__ import annotations

from uuid import UUID

from deliveries import ids, naming
from deliveries.api import present
from deliveries.api.errors import invalid_field, not_found
from deliveries.endpoints import living
from deliveries.models import Endpoint, Event
from ledger.identity import MalformedOperationId, parse
from ledger.models import Operation, Task


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


def endpoint(tenant_id: str, text: str) -> Endpoint:
    """The tenant's endpoint `ep_…`, unless it was deleted."""
    try:
        wanted = living(tenant_id).filter(endpoint_id=ids.parse(ids.ENDPOINT, text))
    except ids.MalformedId as malformed:
        raise not_found("endpoint") from malformed
    found = wanted.first()
    if found is None:
        raise not_found("endpoint")
    return found


def delivery(tenant_id: str, text: str) -> Task:
    """The tenant's delivery `dlv_…`."""
    try:
        wanted = Task.objects.filter(tenant_id=tenant_id, task_id=ids.parse(ids.DELIVERY, text))
    except ids.MalformedId as malformed:
        raise not_found("delivery") from malformed
    found: Task | None = wanted.first()
    if found is None:
        raise not_found("delivery")
    return found


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
