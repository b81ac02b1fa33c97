"""Events: what was accepted, byte for byte, and where it went."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BinaryField, F, Func, IntegerField
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from deliveries import ids
from deliveries.admin.filters import AgeFilter, TenantFilter
from deliveries.admin.status import latest, status_badge, status_of
from deliveries.models import Endpoint, Event
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.page import Block, Button, Facts, Page, Table
from ledger.admin.text import SHOWN_BYTES, block, code, outside, pretty, when
from ledger.models import Operation, Run, Task

SHOWN_DELIVERIES = 100
_EXPUNGED = (
    "Payload, metadata, headers, source, and what receivers answered. It is not sent again. The jobs say who and why."
)


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """One accepted payload."""

    list_display = ("name", "type_shown", "tenant_shown", "deliveries_shown", "accepted")
    list_filter = (AgeFilter, TenantFilter)
    search_help_text = "Exact event id: evt_…"
    list_title = "Events"
    list_intro = "Everything that was accepted, newest first."
    empty_title = "No event yet"
    empty_text = "Submit one with POST /v1/events and an API key, or start the sample traffic with manage.py up --demo."

    def get_queryset(self, request: HttpRequest) -> Any:
        """Without the payloads: they may be large, and only a page of one event shows one."""
        return super().get_queryset(request).defer("payload", "metadata", "digest")

    def name_of(self, key: Any) -> str:
        """`evt_…`."""
        return ids.render(ids.EVENT, key)

    def key_of(self, text: str) -> Any:
        """From `evt_…` or a bare UUID."""
        return parsed(ids.EVENT, text, super().key_of)

    @admin.display(description="Event")
    def name(self, event: Event) -> str | SafeString:
        """Its id."""
        return code(str(event))

    @admin.display(description="Type")
    def type_shown(self, event: Event) -> str | SafeString:
        """Its type."""
        return outside(event.type, 80)

    @admin.display(description="Tenant")
    def tenant_shown(self, event: Event) -> str:
        """Whose it is."""
        return event.tenant_id

    @admin.display(description="Deliveries")
    def deliveries_shown(self, event: Event) -> int:
        """How many endpoints wanted it."""
        return event.deliveries

    @admin.display(description="Accepted")
    def accepted(self, event: Event) -> str | SafeString:
        """When."""
        return when(event.created_at)

    def page(self, request: HttpRequest, row: Event) -> Page:
        """The payload, and every delivery of it."""
        tasks = list(Task.objects.filter(event_id=row.event_id).order_by("task_id")[: SHOWN_DELIVERIES + 1])
        more = len(tasks) > SHOWN_DELIVERIES
        tasks = tasks[:SHOWN_DELIVERIES]
        active = [task.active_run_id for task in tasks]
        runs = Run.objects.in_bulk(active)
        operations = latest(Operation.objects.filter(run_id__in=active))
        endpoints = Endpoint.objects.in_bulk([task.endpoint_id for task in tasks])
        rows = []
        for task in tasks:
            operation = operations.get(task.active_run_id)
            endpoint = endpoints.get(task.endpoint_id)
            rows.append(
                (
                    self.link(Task, task.task_id),
                    status_badge(status_of(runs.get(task.active_run_id), operation)),
                    outside(endpoint.url, 100) if endpoint else "Endpoint is gone",
                    operation.attempts if operation else 0,
                    when(task.created_at),
                )
            )
        start, size = beginning(row)
        facts: list[tuple[str, Any]] = [
            ("Type", outside(row.type)),
            ("Tenant", row.tenant_id),
            ("Accepted", when(row.created_at)),
            ("Deliver at", when(row.deliver_at, "At once")),
            ("Source", outside(row.source)),
            ("Idempotency key", outside(row.idempotency_key)),
            ("Payload", "Removed on request" if row.expunged_at else f"{size:,} bytes"),
            ("Digest", code(bytes(row.digest).hex())),
            *((("Expunged", when(row.expunged_at)),) if row.expunged_at else ()),
        ]
        note = f"The first {SHOWN_DELIVERIES}; the list of deliveries shows the others." if more else ""
        return Page(
            title=f"Event {row}",
            heading=code(str(row)),
            sections=(
                Facts("Event", facts),
                Table(
                    "Deliveries",
                    ("Delivery", "Status", "Endpoint", "Attempts", "Made"),
                    rows,
                    "No endpoint wanted this event when it was accepted. One made later does not get it by itself.",
                    note,
                ),
                *(
                    (Block("Payload", "The content of this event was removed on request.", _EXPUNGED),)
                    if row.expunged_at
                    else (
                        Block(
                            "Payload", block(start, size=size), "The exact bytes that were accepted, signed and sent."
                        ),
                        Block("Metadata", pretty(row.metadata)),
                    )
                ),
            ),
            buttons=(Button("All events", reverse("admin:deliveries_event_changelist")),),
        )


def beginning(event: Event) -> tuple[bytes, int]:
    """As much of the payload as a page shows, and its whole length: a large one is not read to be cut."""
    found: tuple[bytes, int] = (
        Event.objects.filter(pk=event.pk)
        .values_list(
            Func(F("payload"), 1, SHOWN_BYTES, function="substring", output_field=BinaryField()),
            Func(F("payload"), function="octet_length", output_field=IntegerField()),
        )
        .get()
    )
    return found


def parsed(prefix: str, text: str, otherwise: Any) -> Any:
    """The key inside `evt_…`; what `otherwise` makes of any other text."""
    text = text.strip()
    if not text.startswith(prefix):
        return otherwise(text)
    try:
        return ids.parse(prefix, text)
    except ids.MalformedId:
        return None
