"""Resolutions: what was decided about operations, by whom, and why. Append-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from ledger.admin.base import ChoiceFilter, ReadOnlyAdmin
from ledger.admin.page import Facts, Page
from ledger.admin.text import badge, outside, when
from ledger.models import Operation, Resolution
from ledger.states import Decision


class DecisionFilter(ChoiceFilter):
    """Resolutions by what was decided."""

    parameter_name = "decision"
    title = "Decision"
    options = tuple(Decision.choices)
    scanning = frozenset(Decision.values)

    def narrow(self, queryset: Any, value: str) -> Any:
        """Decided so."""
        return queryset.filter(decision=value)


@admin.register(Resolution)
class ResolutionAdmin(ReadOnlyAdmin):
    """Every decision by a person about an unknown operation, and whoever was moved aside out of a line."""

    list_display = ("decided", "operation_shown", "decision_shown", "actor_shown", "reason_shown", "revision_seen")
    list_select_related = ("operation",)
    list_filter = (DecisionFilter,)
    search_help_text = "Exact number of the resolution"
    list_title = "Resolutions"
    list_intro = (
        "Who settled an unknown operation, or moved one aside out of its line, how, and why. Rows are never changed."
    )
    empty_title = "Nobody has had to decide yet"
    empty_text = "Resolutions appear when somebody settles an operation from the queue of unknown operations."

    @admin.display(description="Decided")
    def decided(self, row: Resolution) -> str | SafeString:
        """When."""
        return when(row.decided_at)

    @admin.display(description="Operation")
    def operation_shown(self, row: Resolution) -> str | SafeString:
        """About which operation."""
        return self.link(Operation, row.operation_id, str(row.operation))

    @admin.display(description="Decision")
    def decision_shown(self, row: Resolution) -> SafeString:
        """What was decided."""
        return decision_badge(row.decision)

    @admin.display(description="By")
    def actor_shown(self, row: Resolution) -> str | SafeString:
        """Who."""
        return outside(row.actor, 80)

    @admin.display(description="Reason")
    def reason_shown(self, row: Resolution) -> str | SafeString:
        """Why, in short."""
        return outside(row.reason, 120)

    def page(self, request: HttpRequest, row: Resolution) -> Page:
        """One decision."""
        return Page(
            title=f"Resolution {row.resolution_id}",
            heading=f"Resolution {row.resolution_id}",
            badges=(decision_badge(row.decision),),
            sections=(
                Facts(
                    "Decision",
                    (
                        ("Operation", self.link(Operation, row.operation_id, str(row.operation))),
                        ("Decided", when(row.decided_at)),
                        ("By", outside(row.actor)),
                        ("Decision", Decision(row.decision).label),
                        ("Reason", outside(row.reason, 4000)),
                        ("Revision seen", row.revision_seen),
                    ),
                ),
            ),
        )


def decision_badge(decision: str) -> SafeString:
    """A decision in a word."""
    tones = {
        "succeeded": ("good", "Delivered"),
        "failed": ("bad", "Not delivered"),
        "retry": ("busy", "Send again"),
        "moved_aside": ("warn", "Moved aside"),
    }
    tone, label = tones.get(decision, ("plain", decision))
    return badge(decision, tone, label)
