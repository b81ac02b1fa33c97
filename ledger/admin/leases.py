"""Leases that are held now, found through the queue's rows in flight: the lease table itself is not scanned."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.page import Facts, Page, Table
from ledger.admin.text import badge, code, database_now, span, when
from ledger.models import Dispatch, Lease, Takeover, Task


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Who may advance which run, and for how long still."""

    list_display = ("run_id_shown", "delivery", "owner_shown", "epoch_shown", "acquired", "expires", "left")
    list_select_related = ("run",)
    search_help_text = "Exact run id"
    list_title = "Leases held now"
    list_intro = (
        "A lease is the right to advance one run until it expires. An overdue one belongs to a worker that stopped "
        "renewing: the next worker takes it over under a higher epoch."
    )
    empty_title = "No lease is held"
    empty_text = (
        "Nothing is being sent at this moment. A lease appears here while a worker sends; search for a run id to see "
        "one that is free."
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Lease], search_term: str
    ) -> tuple[QuerySet[Lease], bool]:
        """Those held by what is in flight, or any one by its run's id."""
        if search_term.strip():
            return super().get_search_results(request, queryset, search_term)
        held = Dispatch.objects.filter(until__isnull=False).values("run_id")
        return queryset.filter(owner__isnull=False, run_id__in=held), False

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """One reading of the clock for the whole page."""
        now = database_now()
        for lease in rows:
            lease.now = now

    @admin.display(description="Run")
    def run_id_shown(self, lease: Lease) -> str | SafeString:
        """The run, as the link to the lease's page."""
        return code(lease.run_id)

    @admin.display(description="Delivery")
    def delivery(self, lease: Lease) -> str | SafeString:
        """The delivery that the run belongs to."""
        return self.link(Task, lease.run.task_id)

    @admin.display(description="Owner")
    def owner_shown(self, lease: Lease) -> str | SafeString:
        """The worker session that holds it."""
        return code(lease.owner)

    @admin.display(description="Epoch")
    def epoch_shown(self, lease: Lease) -> int:
        """The term of ownership."""
        return lease.epoch

    @admin.display(description="Acquired")
    def acquired(self, lease: Lease) -> str | SafeString:
        """When the term began."""
        return when(lease.acquired_at)

    @admin.display(description="Expires")
    def expires(self, lease: Lease) -> str | SafeString:
        """When the term ends unless it is renewed."""
        return when(lease.expires_at) if lease.owner else "—"

    @admin.display(description="Time left")
    def left(self, lease: Lease) -> SafeString:
        """How long still, or how long overdue."""
        return time_left(lease, lease.now)  # type: ignore[attr-defined]

    def page(self, request: HttpRequest, row: Lease) -> Page:
        """One lease and the terms that others lost."""
        now = database_now()
        takeovers = Takeover.objects.filter(run_id=row.run_id).order_by("epoch")[:100]
        return Page(
            title=f"Lease of run {row.run_id}",
            heading=code(row.run_id),
            badges=(time_left(row, now),),
            sections=(
                Facts(
                    "Lease",
                    (
                        ("Run", self.run_link(row.run_id, row.run.task_id)),
                        ("Delivery", self.link(Task, row.run.task_id)),
                        ("Owner", code(row.owner) if row.owner else "Nobody: it is free"),
                        ("Epoch", row.epoch),
                        ("Acquired", when(row.acquired_at, "Never")),
                        ("Expires", when(row.expires_at) if row.acquired_at else "—"),
                        ("Written", when(row.updated_at)),
                    ),
                ),
                Table(
                    "Takeovers",
                    ("Epoch", "New owner", "From", "Its lease expired", "Taken"),
                    [
                        (t.epoch, code(t.owner), code(t.previous_owner), when(t.previous_expired_at), when(t.taken_at))
                        for t in takeovers
                    ],
                    "Nobody ever lost this lease.",
                ),
            ),
        )


def time_left(lease: Lease, now: Any) -> SafeString:
    """A badge: free, how long it still runs, or for how long it is overdue."""
    if lease.owner is None:
        return badge("free", "plain")
    if lease.expires_at <= now:
        return badge("overdue", "warn", f"Overdue by {span(now - lease.expires_at)}")
    return format_html("{}", badge("held", "good", f"{span(lease.expires_at - now)} left"))
