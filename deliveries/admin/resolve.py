"""The page where a person settles an unknown operation: evidence, decision, reason, confirmation.

It writes nothing itself: it hands the decision and the revision that the person saw to the ledger. When somebody or
something was there first, the ledger refuses, and the page says what is there now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import reverse

from deliveries.admin import evidence
from deliveries.admin.names import operation_id
from deliveries.admin.permissions import may_resolve
from deliveries.admin.status import promise, window
from deliveries.models import Attempt, Endpoint
from ledger.admin.page import Table
from ledger.admin.records import REASONS
from ledger.admin.text import badge, block, code, database_now, outside, pretty, when
from ledger.managers import unknown
from ledger.models import Operation, Resolution
from ledger.outcome import Applied, Rejected
from ledger.states import Decision

if TYPE_CHECKING:
    from ledger.admin.base import ReadOnlyAdmin

REASON_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision in plain words: what it says, what follows, and the words on the button that confirms it."""

    decision: Decision
    label: str
    consequence: str
    confirm: str
    tone: str


CHOICES = (
    Choice(
        Decision.SUCCEEDED,
        "It was delivered",
        "Choose this when the receiver's own records show the event. The delivery ends as delivered and nothing more "
        "is sent. If it was not taken after all, the receiver never gets it. This cannot be undone.",
        "Settle it as delivered",
        "good",
    ),
    Choice(
        Decision.FAILED,
        "It was not delivered, and shall not be sent again",
        "Choose this when the receiver's own records show that the event never arrived, and it is no longer wanted. "
        "The delivery ends as failed. This cannot be undone.",
        "Settle it as not delivered",
        "bad",
    ),
    Choice(
        Decision.RETRY,
        "Send it again under the same id",
        "The same bytes are sent once more with the same webhook-id and idempotency-key. A receiver that drops "
        "duplicates acts once; one that does not may act twice. What was sent cannot be called back.",
        "Send it again",
        "busy",
    ),
)
BY_DECISION = {choice.decision.value: choice for choice in CHOICES}


class ResolveForm(forms.Form):
    """A decision, why, and the revision of the operation that it rests on."""

    decision = forms.ChoiceField(
        choices=[(choice.decision.value, choice.label) for choice in CHOICES],
        error_messages={"required": "Choose one of the three."},
    )
    reason = forms.CharField(
        max_length=REASON_LENGTH,
        error_messages={"required": "Say why: whoever reads this later has only your words."},
    )
    revision = forms.IntegerField(min_value=0, max_value=2**63 - 1)


def view(owner: ReadOnlyAdmin, request: HttpRequest, key: int) -> HttpResponse:
    """GET: the evidence and the form. POST: a page to confirm; with `confirmed`, the decision itself."""
    if not may_resolve(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(("GET", "POST"))
    row = Operation.objects.select_related("run__task").filter(pk=key).first()
    if row is None:
        raise Http404("There is no such operation.")
    if request.method != "POST":
        return _draw(owner, request, row, ResolveForm(initial={"revision": row.revision}))
    form = ResolveForm(request.POST)
    if not form.is_valid():
        return _draw(owner, request, row, form, status=422)
    if "confirmed" not in request.POST:
        return _draw(owner, request, row, form, confirming=BY_DECISION[form.cleaned_data["decision"]])
    decision = Decision(form.cleaned_data["decision"])
    answer = unknown.resolve(
        operation_key=row.operation_key,
        actor=f"user:{request.user.get_username()}",
        decision=decision,
        reason=form.cleaned_data["reason"],
        revision=form.cleaned_data["revision"],
    )
    match answer:
        case Applied():
            messages.success(request, f"Resolved: {BY_DECISION[decision].label.lower()}.")
            return redirect(reverse("admin:ledger_operation_change", args=(row.operation_key,)))
        case Rejected():
            fresh = Operation.objects.select_related("run__task").get(pk=key)
            again = ResolveForm(initial={**form.cleaned_data, "revision": fresh.revision})
            return _draw(owner, request, fresh, again, rejected=answer, status=409)


def _draw(
    owner: ReadOnlyAdmin,
    request: HttpRequest,
    row: Operation,
    form: ResolveForm,
    *,
    confirming: Choice | None = None,
    rejected: Rejected | None = None,
    status: int = 200,
) -> HttpResponse:
    now = database_now()
    task = row.run.task
    endpoint = Endpoint.objects.filter(pk=task.endpoint_id).first()
    attempts = list(Attempt.objects.filter(operation_key=row.operation_key).order_by("number")[: evidence.SHOWN])
    name = operation_id(task.tenant_id, row)
    from deliveries.admin.operations import facts  # The two pages show the same facts; each may be asked for first.

    last = attempts[-1] if attempts else None
    context: dict[str, Any] = {
        "heading": f"Resolve {name}",
        "name": code(name),
        "operation": row,
        "status_badge": badge(row.status, None, row.get_status_display()),
        "claimed_by": code(row.dispatch_owner) if row.dispatch_owner else "",
        "settled": row.status != "unknown",
        "form": form,
        "choices": CHOICES,
        "chosen": form["decision"].value(),
        "confirming": confirming,
        "rejected": rejected,
        "refusal": REASONS.get(rejected.reason, rejected.reason) if rejected else "",
        "reason": outside(form.cleaned_data["reason"], REASON_LENGTH) if confirming else "",
        "resolutions": _resolutions(row) if rejected or row.status != "unknown" else (),
        "promise": promise(endpoint),
        "window": window(endpoint, row, now),
        "url": outside(endpoint.url) if endpoint else "The endpoint is gone",
        "last": last,
        "last_facts": evidence.attempt_facts(last) if last else (),
        "last_body": block(last.response_body) if last and last.response_body is not None else "",
        "last_evidence": pretty(last.evidence) if last and last.evidence else "",
        "sections": (
            Table(
                "All attempts", evidence.SUMMARY_HEADERS, evidence.attempt_summary(attempts), "Nothing was sent yet."
            ),
            *facts(owner, row, endpoint, now),
        ),
        "operation_url": reverse("admin:ledger_operation_change", args=(row.operation_key,)),
        "trail": (
            ("Unknown operations", reverse("admin:ledger_dispatch_changelist")),
            (name, reverse("admin:ledger_operation_change", args=(row.operation_key,))),
        ),
    }
    return owner.draw(request, "admin/relay/resolve.html", context, status)


def _resolutions(row: Operation) -> list[tuple[Any, ...]]:
    """Who decided what about it, newest first."""
    return [
        (outside(r.actor), when(r.decided_at), Decision(r.decision).label, outside(r.reason, REASON_LENGTH))
        for r in Resolution.objects.filter(operation_id=row.operation_key)[:10]
    ]
