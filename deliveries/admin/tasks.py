"""Deliveries: in the ledger they are tasks. One page tells the whole life of one."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from deliveries import ids
from deliveries.admin import evidence, lines
from deliveries.admin.events import parsed
from deliveries.admin.filters import AgeFilter, DeliveryStatusFilter, EndpointFilter, TenantFilter
from deliveries.admin.names import operation_id
from deliveries.admin.permissions import may_resolve
from deliveries.admin.status import latest, operation_badges, promise, quarantine, status_badge, status_of
from deliveries.models import Endpoint, Event
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.leases import time_left
from ledger.admin.page import Button, Facts, Page, Table, Timeline
from ledger.admin.text import badge, code, database_now, outside, when
from ledger.models import Operation, Run, Task

SHOWN_RUNS = 50


@admin.register(Task)
class DeliveryAdmin(ReadOnlyAdmin):
    """One event going to one endpoint."""

    list_display = ("name", "status", "event_type", "endpoint", "attempts", "made")
    list_filter = (DeliveryStatusFilter, AgeFilter, TenantFilter, EndpointFilter)
    search_help_text = "Exact delivery id: dlv_…"
    list_title = "Deliveries"
    list_intro = "One row per event and endpoint, newest first."
    empty_title = "No delivery"
    empty_text = "A delivery appears when an event is accepted that an enabled endpoint wants."

    def get_urls(self) -> list[Any]:
        """The pages of the admin, and the one where a delivery is moved aside out of its line."""
        aside = self.admin_site.admin_view(self.move_aside_view)
        return [path("<uuid:key>/move-aside/", aside, name="ledger_task_move_aside"), *super().get_urls()]

    def move_aside_view(self, request: HttpRequest, key: uuid.UUID) -> HttpResponse:
        """See `deliveries.admin.lines`."""
        return lines.view(self, request, key)

    def name_of(self, key: Any) -> str:
        """`dlv_…`."""
        return ids.render(ids.DELIVERY, key)

    def key_of(self, text: str) -> Any:
        """From `dlv_…` or a bare UUID."""
        return parsed(ids.DELIVERY, text, super().key_of)

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """Runs, operations, events and endpoints of the page: four queries."""
        active = [task.active_run_id for task in rows]
        runs = Run.objects.in_bulk(active)
        operations = latest(Operation.objects.filter(run_id__in=active))
        types = dict(Event.objects.filter(pk__in={t.event_id for t in rows}).values_list("pk", "type"))
        endpoints = Endpoint.objects.in_bulk({t.endpoint_id for t in rows})
        for task in rows:
            task.operation = operations.get(task.active_run_id)
            task.status = status_of(runs.get(task.active_run_id), task.operation)
            task.event_type = types.get(task.event_id, "")
            task.endpoint = endpoints.get(task.endpoint_id)

    @admin.display(description="Delivery")
    def name(self, task: Task) -> str | SafeString:
        """Its id."""
        return code(self.name_of(task.task_id))

    @admin.display(description="Status")
    def status(self, task: Any) -> SafeString:
        """Where it stands."""
        return status_badge(task.status)

    @admin.display(description="Event type")
    def event_type(self, task: Any) -> str | SafeString:
        """Of what type its event is."""
        return outside(task.event_type, 60)

    @admin.display(description="Endpoint")
    def endpoint(self, task: Any) -> str | SafeString:
        """Where it goes."""
        return outside(task.endpoint.url, 60) if task.endpoint else "Endpoint is gone"

    @admin.display(description="Attempts")
    def attempts(self, task: Any) -> int:
        """How many sends were begun."""
        return task.operation.attempts if task.operation else 0

    @admin.display(description="Made")
    def made(self, task: Task) -> str | SafeString:
        """When."""
        return when(task.created_at)

    def url_of_lease(self, run: Run) -> str:
        """The page of the run's lease."""
        return reverse("admin:ledger_lease_change", args=(run.run_id,))

    def page(self, request: HttpRequest, row: Task) -> Page:
        """Runs and operations in tables, and everything that happened in order of time."""
        now = database_now()
        runs = list(row.runs.select_related("lease").order_by("-run_id")[:SHOWN_RUNS])
        operations = list(Operation.objects.filter(run_id__in=[r.run_id for r in runs]).order_by("operation_key"))
        newest = latest(operations)
        active = next((run for run in runs if run.run_id == row.active_run_id), None)
        current = newest.get(row.active_run_id)
        event = Event.objects.filter(pk=row.event_id).only("event_id", "type").first()
        endpoint = Endpoint.objects.filter(pk=row.endpoint_id).first()
        named = {o.operation_key: operation_id(row.tenant_id, o) for o in operations}
        links = {o.operation_key: self.link(Operation, o.operation_key, named[o.operation_key]) for o in operations}
        facts: list[tuple[str, Any]] = [
            ("Event", self.link(Event, row.event_id)),
            ("Event type", outside(event.type) if event else "The event is gone"),
            ("Endpoint", self.link(Endpoint, row.endpoint_id) if endpoint else "The endpoint is gone"),
            ("URL", outside(endpoint.url) if endpoint else "—"),
            ("It promises", promise(endpoint)),
            ("Tenant", row.tenant_id),
            ("Made", when(row.created_at)),
            ("Next send", when(current.due_at, quarantine(current) or "Not by itself") if current else "—"),
        ]
        place = lines.of_operation(current.operation_key if current and row.in_line else None)
        if place:
            facts.append(("Line", place))
        buttons = [Button("All deliveries", reverse("admin:ledger_task_changelist"))]
        if place and may_resolve(request):
            buttons.insert(0, Button("Move aside", lines.url_of(row.task_id)))
        if current is not None and current.status == "unknown" and may_resolve(request):
            url = reverse("admin:ledger_operation_resolve", args=(current.operation_key,))
            buttons.insert(0, Button("Resolve", url, primary=True))
        return Page(
            title=f"Delivery {self.name_of(row.task_id)}",
            heading=code(self.name_of(row.task_id)),
            badges=(
                status_badge(status_of(active, current)),
                *((lines.holds_badge(),) if place == lines.HOLDS else ()),
            ),
            sections=(
                Facts("Delivery", facts),
                Table(
                    "Operations",
                    ("Operation", "Status", "Attempts", "Revision", "Ambiguous"),
                    [
                        (
                            links[o.operation_key],
                            evidence.joined(operation_badges(o)),
                            o.attempts,
                            o.revision,
                            "Yes: an attempt may have been taken" if o.ambiguous else "No",
                        )
                        for o in operations
                    ],
                    "No operation is registered yet.",
                ),
                Table(
                    "Runs",
                    ("Run", "Why", "Status", "Revision", "Lease", "Epoch", "Made"),
                    [
                        (
                            self.run_link(r.run_id, row.task_id),
                            r.get_reason_display(),
                            badge(r.status, None, r.get_status_display()),
                            r.revision,
                            format_html('<a href="{}">{}</a>', self.url_of_lease(r), time_left(r.lease, now)),
                            r.lease.epoch,
                            when(r.created_at),
                        )
                        for r in runs
                    ],
                    "No run.",
                    f"The newest {SHOWN_RUNS}." if len(runs) == SHOWN_RUNS else "",
                ),
                Timeline(
                    "What happened",
                    evidence.entries(runs, operations, {k: (named[k], links[k]) for k in named}, now),
                    "Nothing happened yet.",
                    f"At most {evidence.SHOWN} records of a kind.",
                ),
            ),
            buttons=tuple(buttons),
        )
