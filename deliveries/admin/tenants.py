"""Tenants: the producer's customers, with their endpoints and keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.safestring import SafeString

from deliveries.admin.keys import key_state
from deliveries.models import ApiKey, Endpoint, Tenant
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.page import Button, Facts, Page, Table
from ledger.admin.text import code, database_now, outside, when

SHOWN = 100


class TenantForm(forms.Form):
    """A new tenant."""

    tenant_id = forms.CharField(
        label="Id",
        max_length=63,
        validators=[
            RegexValidator(r"\A[a-z0-9][a-z0-9_-]{0,62}\Z", "Lower-case letters, digits, _ and -, at most 63 of them.")
        ],
        help_text="Part of every operation id, and never changed. Lower-case letters, digits, _ and -.",
    )
    name = forms.CharField(max_length=200, help_text="For people.")

    def clean_tenant_id(self) -> str:
        """One that is free."""
        tenant_id: str = self.cleaned_data["tenant_id"]
        if Tenant.objects.filter(pk=tenant_id).exists():
            raise forms.ValidationError("There is a tenant of this id already.")
        return tenant_id


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    """A customer of the producer."""

    list_display = ("tenant_id_shown", "name_shown", "made")
    ordering = ("pk",)
    search_help_text = "Exact tenant id"
    list_title = "Tenants"
    list_intro = "Customers of the producer: each owns its endpoints and events."
    empty_title = "No tenant"
    empty_text = "Make the first one here."

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Those with the right to add tenants."""
        return request.user.has_perm("deliveries.add_tenant")

    @admin.display(description="Tenant")
    def tenant_id_shown(self, row: Tenant) -> str | SafeString:
        """Its id."""
        return code(row.tenant_id)

    @admin.display(description="Name")
    def name_shown(self, row: Tenant) -> str | SafeString:
        """Its name."""
        return outside(row.name, 100)

    @admin.display(description="Made")
    def made(self, row: Tenant) -> str | SafeString:
        """When."""
        return when(row.created_at)

    def page(self, request: HttpRequest, row: Tenant) -> Page:
        """Its endpoints and keys."""
        endpoints = Endpoint.objects.filter(tenant_id=row.pk, deleted_at=None).order_by("-endpoint_id")[:SHOWN]
        tenant_keys = ApiKey.objects.filter(tenant_id=row.pk)[:SHOWN]
        now = database_now()
        return Page(
            title=f"Tenant {row.tenant_id}",
            heading=code(row.tenant_id),
            sections=(
                Facts("Tenant", (("Name", outside(row.name)), ("Made", when(row.created_at)))),
                Table(
                    "Endpoints",
                    ("Endpoint", "URL"),
                    [(self.link(Endpoint, e.pk), outside(e.url, 100)) for e in endpoints],
                    "It has no endpoint: nothing is delivered for it.",
                    f"At most {SHOWN}.",
                ),
                Table(
                    "API keys",
                    ("Key", "Name", "State"),
                    [(self.link(ApiKey, k.pk), outside(k.name, 80), key_state(k, now)) for k in tenant_keys],
                    "It has no key of its own.",
                    f"At most {SHOWN}.",
                ),
            ),
            buttons=(Button("Its deliveries", f"{reverse('admin:ledger_task_changelist')}?tenant={row.pk}"),),
        )

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Make a tenant."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TenantForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            Tenant.objects.create(**form.cleaned_data)
            row = Tenant.objects.get(pk=form.cleaned_data["tenant_id"])
            self.log_addition(request, row, "Made in the admin.")
            messages.success(request, f"Tenant {row.tenant_id} is made.")
            return redirect(reverse("admin:deliveries_tenant_change", args=(row.pk,)))
        context = {"form": form, "heading": "New tenant", "submit": "Make the tenant", "back": self.list_url()}
        return self.draw(request, "admin/relay/form.html", context, 422 if form.errors else 200)
