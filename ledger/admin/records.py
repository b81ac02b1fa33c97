"""The append-only records: takeovers and fenced writes."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from ledger.admin.base import ChoiceFilter, ReadOnlyAdmin
from ledger.admin.page import Block, Facts, Page, Table
from ledger.admin.text import badge, code, pretty, span, when
from ledger.identity import compose
from ledger.models import FencedWrite, Operation, Run, Takeover, Task
from ledger.outcome import Reason

REASONS: dict[str, str] = {
    Reason.LEASE_LOST: "Lease lost: another worker holds it, or it expired",
    Reason.LEASE_HELD: "Lease held: another worker holds it",
    Reason.CONFLICT: "Conflict: somebody wrote first under the same epoch",
    Reason.WRONG_STATUS: "Wrong status: it had already moved on",
    Reason.MISSING: "Missing: there is no such row",
    Reason.DIGEST: "Other digest: the outcome belongs to another request",
    Reason.INTEGRITY: "Other intent: the same id was planned with another tool or digest",
    Reason.UNSETTLED: "Not settled: the truth about an operation of it is not known yet",
    Reason.CLAIMED: "In flight: it is being sent at this moment",
    Reason.RUN_CANCELLED: "Run cancelled: nothing of it is sent again",
    Reason.WINDOW_OVER: "Window over: the receiver no longer promises to drop duplicates",
}


class ReasonFilter(ChoiceFilter):
    """Fenced writes by why they were refused."""

    parameter_name = "why"
    title = "Reason"
    options = tuple((str(reason), text.split(":")[0]) for reason, text in REASONS.items())
    scanning = frozenset(map(str, REASONS))

    def narrow(self, queryset: Any, value: str) -> Any:
        """Refused for this reason."""
        return queryset.filter(reason=value)


@admin.register(Takeover)
class TakeoverAdmin(ReadOnlyAdmin):
    """Every time an owner let its lease expire and another took it."""

    list_display = ("taken", "delivery", "epoch_shown", "owner_shown", "previous_shown", "gap")
    list_select_related = ("run",)
    search_help_text = "Exact run id"
    list_title = "Takeover history"
    list_intro = (
        "Each row: a worker stopped renewing, its lease expired, and another took the run over under the next epoch."
    )
    empty_title = "No takeover yet"
    empty_text = (
        "No worker has lost a lease so far. Rows appear when one is killed, hangs, or loses its database connection."
    )

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By the run's exact id."""
        return by_run(queryset, search_term), False

    @admin.display(description="Taken")
    def taken(self, row: Takeover) -> str | SafeString:
        """When."""
        return when(row.taken_at)

    @admin.display(description="Delivery")
    def delivery(self, row: Takeover) -> str | SafeString:
        """Of which delivery."""
        return self.link(Task, row.run.task_id)

    @admin.display(description="New epoch")
    def epoch_shown(self, row: Takeover) -> int:
        """The new term."""
        return row.epoch

    @admin.display(description="New owner")
    def owner_shown(self, row: Takeover) -> str | SafeString:
        """Who took it."""
        return code(row.owner)

    @admin.display(description="Previous owner")
    def previous_shown(self, row: Takeover) -> str | SafeString:
        """Who lost it."""
        return code(row.previous_owner)

    @admin.display(description="After it expired")
    def gap(self, row: Takeover) -> str:
        """How long nobody held it."""
        return span(row.taken_at - row.previous_expired_at)

    def page(self, request: HttpRequest, row: Takeover) -> Page:
        """One takeover."""
        return Page(
            title=f"Takeover {row.takeover_id}",
            heading=f"Takeover of epoch {row.epoch}",
            sections=(
                Facts(
                    "What happened",
                    (
                        ("Run", self.run_link(row.run_id, row.run.task_id)),
                        ("Delivery", self.link(Task, row.run.task_id)),
                        ("New epoch", row.epoch),
                        ("New owner", code(row.owner)),
                        ("Previous owner", code(row.previous_owner)),
                        ("Its lease expired", when(row.previous_expired_at)),
                        ("Taken", when(row.taken_at)),
                        ("Held by nobody for", span(row.taken_at - row.previous_expired_at)),
                    ),
                ),
            ),
        )


@admin.register(FencedWrite)
class FencedWriteAdmin(ReadOnlyAdmin):
    """Every write that was refused because its owner, epoch or revision was no longer current."""

    list_display = ("refused", "statement_shown", "reason_shown", "run_shown", "who", "presented", "current")
    list_filter = (ReasonFilter,)
    search_help_text = "Exact run id"
    list_title = "Fenced writes"
    list_intro = (
        "A refused write is an expected answer: it kept a worker that had lost its right from overwriting newer state. "
        "What it had learned is kept."
    )
    empty_title = "No write was ever refused"
    empty_text = "Rows appear when a worker that lost its lease still tries to write. None has."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By the run's exact id."""
        return by_run(queryset, search_term), False

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """The deliveries of all runs of the page."""
        tasks = dict(Run.objects.filter(pk__in=[r.run_id for r in rows if r.run_id]).values_list("pk", "task_id"))
        for row in rows:
            row.task = tasks.get(row.run_id)

    @admin.display(description="Refused")
    def refused(self, row: FencedWrite) -> str | SafeString:
        """When."""
        return when(row.refused_at)

    @admin.display(description="Statement")
    def statement_shown(self, row: FencedWrite) -> str | SafeString:
        """Which statement."""
        return code(row.statement)

    @admin.display(description="Reason")
    def reason_shown(self, row: FencedWrite) -> SafeString:
        """Why."""
        return badge(row.reason, "warn", REASONS.get(row.reason, row.reason).split(":")[0])

    @admin.display(description="Run")
    def run_shown(self, row: FencedWrite) -> str | SafeString:
        """On which run."""
        return self.run_link(row.run_id, row.task)  # type: ignore[attr-defined]

    @admin.display(description="Who tried")
    def who(self, row: FencedWrite) -> str | SafeString:
        """Whose write it was."""
        return code(row.owner)

    @admin.display(description="Presented")
    def presented(self, row: FencedWrite) -> str:
        """The epoch and revision it relied on."""
        return f"epoch {dash(row.epoch)}, revision {dash(row.revision)}"

    @admin.display(description="Current")
    def current(self, row: FencedWrite) -> str:
        """What was true."""
        return f"epoch {dash(row.seen_epoch)}, revision {dash(row.seen_revision)}"

    def page(self, request: HttpRequest, row: FencedWrite) -> Page:
        """What was presented beside what was current, and the evidence."""
        self.prepare(request, [row])
        operation = None
        if row.operation_key:
            operation = Operation.objects.select_related("run__task").filter(pk=row.operation_key).first()
        return Page(
            title=f"Fenced write {row.fenced_write_id}",
            heading=code(row.statement),
            badges=(badge(row.reason, "warn", REASONS.get(row.reason, row.reason).split(":")[0]),),
            intro=REASONS.get(row.reason, row.reason),
            sections=(
                Table(
                    "Presented and current",
                    ("", "Presented", "Current"),
                    (
                        ("Owner", code(row.owner), code(row.seen_owner)),
                        ("Epoch", dash(row.epoch), dash(row.seen_epoch)),
                        ("Revision", dash(row.revision), dash(row.seen_revision)),
                        ("Status", "—", badge(row.seen_status) if row.seen_status else "—"),
                        ("Lease expires", "—", when(row.seen_expires_at)),
                    ),
                    "",
                ),
                Facts(
                    "About",
                    (
                        ("Run", self.run_link(row.run_id, row.task)),  # type: ignore[attr-defined]
                        (
                            "Operation",
                            self.link(Operation, row.operation_key, whole_id(operation)) if operation else "—",
                        ),
                        ("Refused", when(row.refused_at)),
                    ),
                ),
                Block("What the refused write had learned", pretty(row.evidence)),
            ),
        )


def whole_id(operation: Operation) -> str:
    """The operation's public id, with its tenant."""
    run = operation.run
    return compose(run.task.tenant_id, run.run_id, operation.step_id, operation.effect_version)


def by_run(queryset: Any, term: str) -> Any:
    """Rows of the run that `term` names exactly; all rows without a term."""
    if not term.strip():
        return queryset
    try:
        run_id = uuid.UUID(term.strip())
    except ValueError:
        return queryset.none()
    return queryset.filter(run_id=run_id)


def dash(value: int | None) -> str | int:
    """A number, or a dash."""
    return "—" if value is None else value
