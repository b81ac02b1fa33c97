"""The work queue of unknown operations, oldest first, read from the queue's own partial index."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from deliveries import lines
from deliveries.admin.evidence import joined
from deliveries.admin.lines import holds_badge
from deliveries.admin.names import operation_id
from deliveries.admin.permissions import may_resolve
from deliveries.admin.status import promise, quarantine, said, status_badge
from deliveries.models import Attempt, Endpoint
from deliveries.reconcile import quarantined
from ledger import identity
from ledger.admin.base import ChoiceFilter, ReadOnlyAdmin
from ledger.admin.text import ago, badge, code, database_now, outside, span, when
from ledger.models import Dispatch, Operation, Task


class MovesOnFilter(ChoiceFilter):
    """Unknown operations by who moves them on. Without a choice: those that wait for a person."""

    parameter_name = "moves"
    title = "Who moves it on"
    options = (("quarantined", "Quarantined"), ("itself", "Retried by itself"), ("all", "All"))
    tabs = True

    def choices(self, changelist: Any) -> Any:
        """The default comes first, under its own name instead of "All"."""
        chosen = self.value()
        yield {
            "selected": chosen is None,
            "query_string": changelist.get_query_string(remove=[self.parameter_name]),
            "display": "Needs a person",
        }
        for value, label in self.lookup_choices:
            yield {
                "selected": chosen == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """One of the four tabs."""
        match self.value():
            case "quarantined":
                return queryset.filter(until=None, operation__losses__gte=settings.RELAY_POISON_LOSSES)
            case "itself":
                return queryset.exclude(due_at=None, until=None)
            case "all":
                return queryset
            case _:
                return queryset.filter(due_at=None, until=None)


@admin.register(Dispatch)
class UnknownOperationAdmin(ReadOnlyAdmin):
    """Sends whose outcome nobody knows. A person settles those that nothing else can."""

    list_display = ("operation_shown", "unknown_for", "endpoint", "promises", "evidence", "next_step")
    list_select_related = ("operation__run__task",)
    list_filter = (MovesOnFilter,)
    ordering = ("pk",)
    search_help_text = "Exact operation id: tenant/run/step/version"
    list_title = "Unknown operations"
    list_intro = (
        "Each was sent, and nobody can say whether the receiver took it: it is not failed, and it is not delivered. "
        "Look at the evidence, ask the receiver, then resolve it. Oldest first."
    )
    empty_title = "Nothing waits for a person"
    empty_text = (
        "Every send has a known outcome, or will be settled without you. An operation appears here when the connection "
        "broke after the request was sent and its endpoint neither drops duplicates nor answers queries."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Dispatch]:
        """Of the queue, only what is unknown."""
        queryset: QuerySet[Dispatch] = super().get_queryset(request).filter(unknown_since__isnull=False)
        return queryset

    def key_of(self, text: str) -> Any:
        """From the operation's public id or its internal number."""
        if "/" not in text:
            return super().key_of(text)
        try:
            parts = identity.parse(text.strip())
        except identity.MalformedOperationId:
            return None
        found = Operation.objects.filter(
            run_id=parts.run_id, step_id=parts.step_id, effect_version=parts.effect_version
        )
        return found.values_list("pk", flat=True).first()

    def url_of(self, row: Dispatch) -> str:
        """The operation's page."""
        return reverse("admin:ledger_operation_change", args=(row.operation_id,))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of the operation is the page of its place in the queue."""
        return redirect(reverse("admin:ledger_operation_change", args=(object_id,)))

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """Endpoints and last attempts of the page: two queries, one for the clock, and one when some stand in line."""
        endpoints = Endpoint.objects.in_bulk({row.endpoint_id for row in rows})
        newest = (
            Attempt.objects.filter(operation_key__in=[row.operation_id for row in rows])
            .order_by("operation_key", "-number")
            .distinct("operation_key")
            .defer("response_body", "response_headers", "evidence")
        )
        last = {attempt.operation_key: attempt for attempt in newest}
        places = lines.places(row.operation_id for row in rows if row.in_line)
        now, allowed = database_now(), may_resolve(request)
        for row in rows:
            row.endpoint = endpoints.get(row.endpoint_id)
            row.holds_line = places.get(row.operation_id, False)
            row.last, row.now, row.allowed = last.get(row.operation_id), now, allowed

    @admin.display(description="Operation")
    def operation_shown(self, row: Dispatch) -> str | SafeString:
        """Its public id, as the link to its page."""
        return code(operation_id(row.operation.run.task.tenant_id, row.operation))

    @admin.display(description="Unknown for")
    def unknown_for(self, row: Any) -> SafeString:
        """How long nobody has known."""
        return joined((span(row.now - row.unknown_since), when(row.unknown_since)))

    @admin.display(description="Endpoint, delivery")
    def endpoint(self, row: Any) -> SafeString:
        """Where it was sent, and the delivery that it belongs to."""
        url = outside(row.endpoint.url, 60) if row.endpoint else "The endpoint is gone"
        return joined((url, self.link(Task, row.operation.run.task_id)))

    @admin.display(description="What it promises")
    def promises(self, row: Any) -> str:
        """What may safely be done rests on this."""
        return promise(row.endpoint)

    @admin.display(description="Evidence")
    def evidence(self, row: Any) -> SafeString:
        """The last attempt, and how many there were."""
        return joined((f"{row.operation.attempts} sent", said(row.last)))

    @admin.display(description="What next")
    def next_step(self, row: Any) -> SafeString:
        """The button for those who may, or when it moves on by itself."""
        if row.until is not None:
            step = format_html("Being sent again, until {}", when(row.until))
        elif row.due_at is not None:
            step = format_html("Sent again {}", ago(row.due_at, row.now) if row.due_at > row.now else "now")
        elif quarantined(row.operation):
            step = format_html("{} {}", status_badge("quarantined"), quarantine(row.operation))
        else:
            step = badge("person", "warn", "Needs a person")
        if row.holds_line:
            step = joined((holds_badge(), step))
        if not row.allowed:
            return step
        url = reverse("admin:ledger_operation_resolve", args=(row.operation_id,))
        return joined((step, format_html('<a class="relay-button" href="{}">Resolve</a>', url)))
