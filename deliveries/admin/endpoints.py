"""Endpoints: read by everyone who may, made and changed through the same services as the API."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters

from deliveries import endpoints, health, ids, reachability
from deliveries.admin import lines
from deliveries.admin.endpoint_facts import (
    authentication_facts,
    health_facts,
    nothing_yet,
    receiver_facts,
    sending_facts,
    state_badge,
)
from deliveries.admin.endpoint_form import EditEndpointForm, NewEndpointForm, changes_of, defaults, initial, tell
from deliveries.admin.events import parsed
from deliveries.admin.filters import TenantFilter
from deliveries.admin.rotation import rotate_view
from deliveries.admin.status import latest, promise, status_badge, status_of
from deliveries.models import Endpoint
from ledger.admin.base import ChoiceFilter, ReadOnlyAdmin
from ledger.admin.page import Button, Facts, Page, Table
from ledger.admin.text import code, outside, when
from ledger.models import Operation, Run, Task

SHOWN_DELIVERIES = 25


class EnabledFilter(ChoiceFilter):
    """Endpoints by whether they receive."""

    parameter_name = "state"
    title = "State"
    options = (
        ("enabled", "Enabled"),
        ("disabled", "Disabled"),
        ("paused", "Paused"),
        ("failing", "Failing"),
        ("deleted", "Deleted"),
    )
    scanning = frozenset({"enabled", "disabled", "paused", "failing", "deleted"})

    def narrow(self, queryset: Any, value: str) -> Any:
        """In this state."""
        match value:
            case "enabled":
                return queryset.filter(enabled=True, deleted_at=None)
            case "disabled":
                return queryset.filter(enabled=False, deleted_at=None)
            case "paused":
                return queryset.filter(blocked_until__isnull=False, deleted_at=None)
            case "failing":
                return queryset.filter(state__failing_since__isnull=False, enabled=True, deleted_at=None)
            case _:
                return queryset.filter(deleted_at__isnull=False)


@admin.register(Endpoint)
class EndpointAdmin(ReadOnlyAdmin):
    """A receiver: where, what, how often, and what it promises."""

    list_display = ("name", "url_shown", "tenant_shown", "state", "promises", "made")
    list_filter = (EnabledFilter, TenantFilter)
    search_help_text = "Exact endpoint id: ep_…"
    list_title = "Endpoints"
    list_intro = "The receivers, newest first."
    empty_title = "No endpoint yet"
    empty_text = "Make one here, or with POST /v1/endpoints. Events accepted before that do not go to it."

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """How the endpoints of the page are doing."""
        found = health.state_of([row.pk for row in rows])
        for row in rows:
            row.doing = found.get(row.pk)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Those with the right to add endpoints."""
        return request.user.has_perm("deliveries.add_endpoint")

    def may_change(self, request: HttpRequest) -> bool:
        """Those with the right to change endpoints. The change view itself stays a page to read."""
        return request.user.has_perm("deliveries.change_endpoint")

    def may_delete(self, request: HttpRequest) -> bool:
        """Those with the right to delete endpoints."""
        return request.user.has_perm("deliveries.delete_endpoint")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Those who may see endpoints, or change them."""
        return request.user.has_perm("deliveries.view_endpoint") or self.may_change(request)

    def get_urls(self) -> list[Any]:
        """The pages of the admin, and those that write."""
        return [
            path("<uuid:key>/edit/", self.admin_site.admin_view(self.edit_view), name="deliveries_endpoint_edit"),
            path(
                "<uuid:key>/secret/",
                self.admin_site.admin_view(rotate_view(self)),
                name="deliveries_endpoint_secret",
            ),
            path("<uuid:key>/remove/", self.admin_site.admin_view(self.remove_view), name="deliveries_endpoint_remove"),
            *super().get_urls(),
        ]

    def name_of(self, key: Any) -> str:
        """`ep_…`."""
        return ids.render(ids.ENDPOINT, key)

    def key_of(self, text: str) -> Any:
        """From `ep_…` or a bare UUID."""
        return parsed(ids.ENDPOINT, text, super().key_of)

    @admin.display(description="Endpoint")
    def name(self, row: Endpoint) -> str | SafeString:
        """Its id."""
        return code(self.name_of(row.endpoint_id))

    @admin.display(description="URL")
    def url_shown(self, row: Endpoint) -> str | SafeString:
        """Where."""
        return outside(row.url, 80)

    @admin.display(description="Tenant")
    def tenant_shown(self, row: Endpoint) -> str:
        """Whose."""
        return row.tenant_id

    @admin.display(description="State")
    def state(self, row: Endpoint) -> SafeString:
        """Whether it receives, and why not."""
        return state_badge(row, getattr(row, "doing", None))

    @admin.display(description="It promises")
    def promises(self, row: Endpoint) -> str:
        """What may be done about an unknown send."""
        return promise(row)

    @admin.display(description="Made")
    def made(self, row: Endpoint) -> str | SafeString:
        """When."""
        return when(row.created_at)

    def page(self, request: HttpRequest, row: Endpoint) -> Page:
        """Its settings and its latest deliveries. The signing secret is on no page."""
        tasks = list(Task.objects.filter(endpoint_id=row.endpoint_id).order_by("-task_id")[:SHOWN_DELIVERIES])
        active = [task.active_run_id for task in tasks]
        runs = Run.objects.in_bulk(active)
        operations = latest(Operation.objects.filter(run_id__in=active))
        doing = health.state_of([row.pk]).get(row.pk)
        all_of_it = f"{reverse('admin:ledger_task_changelist')}?endpoint={self.name_of(row.endpoint_id)}"
        buttons = [Button("Its deliveries", all_of_it)]
        if row.deleted_at is None:
            if self.may_delete(request):
                buttons.insert(0, Button("Delete", reverse("admin:deliveries_endpoint_remove", args=(row.pk,))))
            if self.may_change(request):
                replace = reverse("admin:deliveries_endpoint_secret", args=(row.pk,))
                buttons.insert(0, Button("Replace the secret", replace))
                buttons.insert(
                    0, Button("Edit", reverse("admin:deliveries_endpoint_edit", args=(row.pk,)), primary=True)
                )
        return Page(
            title=f"Endpoint {self.name_of(row.endpoint_id)}",
            heading=code(self.name_of(row.endpoint_id)),
            badges=(state_badge(row, doing),),
            sections=(
                Facts("Health", health_facts(row, doing)),
                Facts("Receiver", receiver_facts(row)),
                Facts("Authentication", authentication_facts(row)),
                Facts("Delivery", sending_facts(row)),
                *lines.sections(self, row),
                Table(
                    "Latest deliveries",
                    ("Delivery", "Status", "Attempts", "Made"),
                    [
                        (
                            self.link(Task, t.task_id),
                            status_badge(status_of(runs.get(t.active_run_id), operations.get(t.active_run_id))),
                            operations[t.active_run_id].attempts if t.active_run_id in operations else 0,
                            when(t.created_at),
                        )
                        for t in tasks
                    ],
                    nothing_yet(row),
                ),
            ),
            buttons=tuple(buttons),
        )

    @method_decorator(sensitive_post_parameters())
    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Make an endpoint, and show its signing secret this once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewEndpointForm(request.POST or None, initial={"tenant": "default", **defaults()})
        if request.method == "POST" and form.is_valid():
            try:
                row, secret = endpoints.create(
                    form.cleaned_data["tenant"], changes_of(form.cleaned_data, form.changed_data)
                )
            except endpoints.EndpointRefused as refused:
                tell(form, refused)
            else:
                self.log_addition(request, row, "Made in the admin.")
                _advise(request, row)
                return _shown_once(self, request, row, secret)
        return self._form(request, form, "New endpoint", "Make the endpoint", self.list_url())

    @method_decorator(sensitive_post_parameters())
    def edit_view(self, request: HttpRequest, key: Any) -> HttpResponse:
        """Change an endpoint: only what was changed in the form is written."""
        if not self.may_change(request):
            raise PermissionDenied
        row = Endpoint.objects.filter(pk=key, deleted_at=None).first()
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(key))  # type: ignore[no-any-return]
        seen = row.updated_at.isoformat()
        form = EditEndpointForm(row, request.POST or None, initial={**initial(row), "seen": seen})
        back = reverse("admin:deliveries_endpoint_change", args=(row.pk,))
        if request.method == "POST" and form.is_valid():
            changes = changes_of(form.cleaned_data, form.changed_data)
            if form.cleaned_data["seen"] != seen:
                form.add_error(
                    None, "Somebody changed this endpoint while you edited it. Nothing was saved: open it again."
                )
                return self._form(request, form, f"Edit {self.name_of(row.pk)}", "Save", back, 409)
            try:
                endpoints.update(row.tenant_id, row.endpoint_id, changes)
            except endpoints.EndpointRefused as refused:
                tell(form, refused)
            else:
                self.log_change(request, row, [{"changed": {"fields": sorted(changes)}}])
                messages.success(request, "Saved." if changes else "Nothing was changed.")
                if "url" in changes:
                    _advise(request, Endpoint.objects.get(pk=row.pk))
                return redirect(back)
        return self._form(request, form, f"Edit {self.name_of(row.pk)}", "Save", back)

    def remove_view(self, request: HttpRequest, key: Any) -> HttpResponse:
        """Delete an endpoint, after a question."""
        if not self.may_delete(request):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(("GET", "POST"))
        row = Endpoint.objects.filter(pk=key, deleted_at=None).first()
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(key))  # type: ignore[no-any-return]
        if request.method == "POST":
            endpoints.delete(row.tenant_id, row.endpoint_id)
            self.log_change(request, row, "Deleted.")
            messages.success(request, f"{self.name_of(row.pk)} is deleted.")
            return redirect(self.list_url())
        context = {
            "heading": f"Delete {self.name_of(row.pk)}?",
            "subject": outside(row.url),
            "text": "It gets no further events, and what still waits for it is cancelled. "
            "Its deliveries stay on record. This cannot be undone.",
            "confirm": "Delete the endpoint",
            "back": reverse("admin:deliveries_endpoint_change", args=(row.pk,)),
        }
        return self.draw(request, "admin/relay/confirm.html", context)

    def _form(
        self, request: HttpRequest, form: forms.Form, title: str, submit: str, back: str, refused: int = 422
    ) -> HttpResponse:
        status = refused if form.errors else 200
        context = {"form": form, "heading": title, "submit": submit, "back": back}
        return self.draw(request, "admin/relay/form.html", context, status)


def _advise(request: HttpRequest, row: Endpoint) -> None:
    """Say why nothing would be sent to a URL at this moment, if that can be seen."""
    advice = reachability.preview(row.url)
    if advice is not None:
        messages.warning(request, advice)


def _shown_once(owner: EndpointAdmin, request: HttpRequest, row: Endpoint, secret: str) -> HttpResponse:
    context = {
        "heading": "The endpoint is made",
        "label": "Its signing secret",
        "secret": secret,
        "text": "The receiver verifies signatures with it. Copy it now: it is kept encrypted and never shown again.",
        "next_url": reverse("admin:deliveries_endpoint_change", args=(row.pk,)),
        "next_label": "To the endpoint",
    }
    return owner.draw(request, "admin/relay/once.html", context)
