"""The line of an ordered endpoint as a person sees it, and the page where a delivery is moved aside out of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.safestring import SafeString

from deliveries import lines
from deliveries.admin.permissions import may_resolve
from deliveries.admin.resolve import REASON_LENGTH
from deliveries.models import Endpoint
from deliveries.tasks import ring
from ledger.admin.page import Facts
from ledger.admin.text import badge, when
from ledger.models import Operation, Task
from ledger.outcome import Applied, Reason, Rejected

if TYPE_CHECKING:
    from ledger.admin.base import ReadOnlyAdmin

HOLDS = "It holds the line of its endpoint: those accepted after it wait for it."
WAITS = "It stands in its endpoint's line, and is sent when it is the first there."
_WHY = {
    Reason.NOT_IN_LINE: "It stands in no line.",
    Reason.WRONG_STATUS: "It is settled, and holds nobody up.",
    Reason.CLAIMED: "It is being sent at this moment, and the next in line would overtake it. Look again in a while.",
}


class MoveAsideForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        max_length=REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Those accepted after it wait for it no longer. It is sent when it is due, out of order, and does "
        "not come back into the line. This cannot be undone.",
        error_messages={"required": "Say why: whoever reads this later has only your words."},
    )


def holds_badge() -> SafeString:
    """For what the others wait for."""
    return badge("holds_line", "warn", "Holds the line")


def of_operation(key: int | None) -> str:
    """What an operation is to its line, in a sentence; empty when it stands in none."""
    if key is None:
        return ""
    place = lines.places([key]).get(key)
    return "" if place is None else HOLDS if place else WAITS


def sections(owner: ReadOnlyAdmin, endpoint: Endpoint) -> tuple[Facts, ...]:
    """The line of an endpoint, for its page; nothing where nobody stands in one."""
    line = lines.of(endpoint.endpoint_id)
    if line is None:
        return ()
    facts: list[tuple[str, Any]] = [
        ("How many stand in it", line.counted),
        ("The first one", owner.link(Task, line.task_id)),
        ("Its operation", owner.link(Operation, line.operation_key, line.operation_id)),
        ("Why it holds the others", line.why),
        ("Until", when(line.until, "Not by the clock")),
        ("First sent", when(line.since, "Not yet")),
        ("Accepted", when(line.accepted_at)),
        ("Attempts", line.attempts if line.patience is None else f"{line.attempts} of {line.patience}"),
    ]
    return (Facts("Its line", facts),)


def url_of(task_id: uuid.UUID) -> str:
    """Where a delivery is moved aside."""
    return reverse("admin:ledger_task_move_aside", args=(task_id,))


def view(owner: ReadOnlyAdmin, request: HttpRequest, key: uuid.UUID) -> HttpResponse:
    """GET: what it means, and the form. POST: it leaves its line; 409, with what stands there now, when it may not."""
    if not may_resolve(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(("GET", "POST"))
    row = Task.objects.filter(pk=key).first()
    if row is None:
        raise Http404("There is no such delivery.")
    form = MoveAsideForm(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            actor = f"user:{request.user.get_username()}"
            match lines.leave(row.task_id, actor=actor, reason=form.cleaned_data["reason"]):
                case Applied():
                    ring()
                    messages.success(request, "It left its line.")
                    return redirect(reverse("admin:ledger_task_change", args=(row.task_id,)))
                case Rejected(reason=reason):
                    form.add_error(None, _WHY.get(reason, f"Refused: {reason}."))
                    status = 409
    context = {
        "heading": f"Move {owner.name_of(row.task_id)} aside?",
        "form": form,
        "submit": "Move it aside",
        "back": reverse("admin:ledger_task_change", args=(row.task_id,)),
    }
    return owner.draw(request, "admin/relay/form.html", context, status)
