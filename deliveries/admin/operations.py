"""Operations: one side-effect intent each, with its identity, its claim and its evidence."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from deliveries.admin import evidence, lines, resolve
from deliveries.admin.filters import OperationStatusFilter
from deliveries.admin.names import operation_id
from deliveries.admin.permissions import may_resolve
from deliveries.admin.status import operation_badges, promise, quarantine, window
from deliveries.models import Acknowledgement, Attempt, Endpoint, Event
from ledger import identity
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.page import Button, Facts, Page, Section, Table, Timeline
from ledger.admin.text import ago, badge, code, database_now, outside, pretty, when
from ledger.models import FencedWrite, Operation, Resolution, Task


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    """What was meant to happen, whether it did, and what proves it."""

    list_display = ("name", "status_shown", "delivery", "attempts_shown", "revision_shown", "owner", "until", "due")
    list_select_related = ("run__task",)
    list_filter = (OperationStatusFilter,)
    search_help_text = "Exact operation id: tenant/run/step/version"
    list_title = "Operations"
    list_intro = (
        "One row per side effect that was planned. Its id stays the same through every retry, takeover and restart."
    )
    empty_title = "No operation"
    empty_text = "Operations appear when an event is accepted that an endpoint wants."

    def get_urls(self) -> list[Any]:
        """The pages of the admin, and the one where a person settles an unknown operation."""
        settle = self.admin_site.admin_view(self.resolve_view)
        return [path("<int:key>/resolve/", settle, name="ledger_operation_resolve"), *super().get_urls()]

    def resolve_view(self, request: HttpRequest, key: int) -> HttpResponse:
        """See `deliveries.admin.resolve`."""
        return resolve.view(self, request, key)

    def key_of(self, text: str) -> Any:
        """From the public id or from the internal number."""
        if "/" not in text:
            return super().key_of(text)
        try:
            parts = identity.parse(text.strip())
        except identity.MalformedOperationId:
            return None
        return (
            Operation.objects.filter(run_id=parts.run_id, step_id=parts.step_id, effect_version=parts.effect_version)
            .values_list("pk", flat=True)
            .first()
        )

    @admin.display(description="Operation")
    def name(self, row: Operation) -> str | SafeString:
        """Its public id."""
        return code(operation_id(row.run.task.tenant_id, row))

    @admin.display(description="Status")
    def status_shown(self, row: Operation) -> SafeString:
        """What is known."""
        return evidence.joined(operation_badges(row))

    @admin.display(description="Delivery")
    def delivery(self, row: Operation) -> str | SafeString:
        """Of which delivery."""
        return self.link(Task, row.run.task_id)

    @admin.display(description="Attempts")
    def attempts_shown(self, row: Operation) -> int:
        """How many sends were begun."""
        return row.attempts

    @admin.display(description="Revision")
    def revision_shown(self, row: Operation) -> int:
        """How often it was written."""
        return row.revision

    @admin.display(description="Claimed by")
    def owner(self, row: Operation) -> str | SafeString:
        """Who sends it now."""
        return code(row.dispatch_owner)

    @admin.display(description="Until")
    def until(self, row: Operation) -> str | SafeString:
        """When the claim runs out."""
        return when(row.dispatch_until)

    @admin.display(description="Due")
    def due(self, row: Operation) -> str | SafeString:
        """When it may be claimed."""
        return when(row.due_at)

    def page(self, request: HttpRequest, row: Operation) -> Page:
        """Identity, claim, evidence and decisions."""
        now = database_now()
        task = row.run.task
        name = operation_id(task.tenant_id, row)
        endpoint = Endpoint.objects.filter(pk=task.endpoint_id).first()
        buttons = [Button("All operations", self.list_url())]
        if row.status == "unknown" and may_resolve(request):
            url = reverse("admin:ledger_operation_resolve", args=(row.operation_key,))
            buttons.insert(0, Button("Resolve", url, primary=True))
        attempts = list(Attempt.objects.filter(operation_key=row.operation_key)[: evidence.SHOWN])
        words = list(Acknowledgement.objects.filter(operation_key=row.operation_key)[: evidence.SHOWN])
        happened = [
            evidence.of_operation(row, name, code(name), row.run.created_at),
            *(evidence.of_attempt(a) for a in attempts),
            *(evidence.of_acknowledgement(a) for a in words),
            *(evidence.of_fenced_write(f) for f in FencedWrite.objects.filter(operation_key=row.pk)[: evidence.SHOWN]),
            *(evidence.of_resolution(r) for r in Resolution.objects.filter(operation_id=row.pk)[: evidence.SHOWN]),
        ]
        return Page(
            title=f"Operation {name}",
            heading=code(name),
            badges=operation_badges(row),
            sections=(
                *facts(self, row, endpoint, now),
                Table(
                    "Attempts",
                    evidence.SUMMARY_HEADERS,
                    evidence.attempt_summary(attempts),
                    "Nothing was sent yet.",
                    "Each attempt is one HTTP request: evidence, not an identity of its own.",
                ),
                Table(
                    "What the receiver said",
                    evidence.WORD_HEADERS,
                    evidence.acknowledgement_summary(words),
                    "It said nothing beside its answers.",
                ),
                Timeline("What happened", happened, "Nothing happened yet."),
            ),
            buttons=tuple(buttons),
        )


def facts(owner: ReadOnlyAdmin, row: Operation, endpoint: Endpoint | None, now: Any) -> tuple[Section, ...]:
    """What an operation is, what is known about it, and what its endpoint promises."""
    task = row.run.task
    claim: Any = "Nobody"
    if row.dispatch_owner:
        claim = format_html(
            "{} until {} ({})", code(row.dispatch_owner), when(row.dispatch_until), ago(row.dispatch_until, now)
        )
    if row.due_at:
        due: Any = format_html("{} ({})", when(row.due_at), ago(row.due_at, now))
    elif quarantine(row):
        due = quarantine(row)
    elif row.status == "unknown":
        due = "Not by itself: it needs evidence or a person"
    else:
        due = "—"
    return (
        Facts(
            "Identity",
            (
                ("Tenant", task.tenant_id),
                ("Run", owner.run_link(row.run_id, task.task_id)),
                ("Step", outside(row.step_id)),
                ("Effect version", row.effect_version),
                ("Tool", outside(row.tool)),
                ("Delivery", owner.link(Task, task.task_id)),
                ("Event", owner.link(Event, task.event_id)),
                ("Digest", code(bytes(row.request_digest).hex())),
            ),
        ),
        Facts(
            "State",
            (
                ("Status", badge(row.status, None, row.get_status_display())),
                ("Revision", row.revision),
                ("Attempts", row.attempts),
                ("Lost in a row", f"{row.losses} of them lost their worker" if row.losses else "None"),
                ("Ambiguous", "Yes: an attempt may have been taken" if row.ambiguous else "No"),
                ("Claimed by", claim),
                ("Next send", due),
                ("Line", lines.of_operation(row.operation_key if task.in_line else None) or "It stands in none"),
                ("First sent", when(row.first_dispatched_at, "Never")),
                ("Last sent", when(row.dispatched_at, "Never")),
                ("No retry after", when(row.retry_until)),
                ("Remote id", outside(row.remote_id)),
                ("Result", pretty(row.result, 4096)),
            ),
        ),
        Facts(
            "What the endpoint promises",
            (
                ("Endpoint", owner.link(Endpoint, task.endpoint_id) if endpoint else "The endpoint is gone"),
                ("URL", outside(endpoint.url) if endpoint else "—"),
                ("It promises", promise(endpoint)),
                ("Would it drop a duplicate now?", window(endpoint, row, now)),
                ("Query URL", outside(endpoint.query_url) if endpoint else "—"),
            ),
        ),
    )
