"""API keys. A key's text is shown once, when it is made; nothing here can show it again."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.safestring import SafeString

from deliveries import ids, keys
from deliveries.admin.events import parsed
from deliveries.models import ApiKey, Scope, Tenant
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.page import Button, Facts, Page
from ledger.admin.text import badge, code, database_now, outside, when


class KeyForm(forms.Form):
    """A new key."""

    name = forms.CharField(max_length=200, help_text="Who or what will use it.")
    tenant = forms.CharField(
        required=False, help_text="A tenant's id. Empty: the operator's key, which may act for all."
    )
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=forms.CheckboxSelectMultiple)
    expires_at = forms.DateTimeField(
        label="Expires (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"),
        help_text="Empty: never.",
    )

    def clean_tenant(self) -> str | None:
        """A tenant that exists, or nobody."""
        tenant: str = self.cleaned_data["tenant"].strip()
        if tenant and not Tenant.objects.filter(pk=tenant).exists():
            raise forms.ValidationError("There is no tenant of this id.")
        return tenant or None


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """A bearer key."""

    list_display = ("name_shown", "lookup_shown", "tenant_shown", "scopes_shown", "state", "last_used", "made")
    search_help_text = "Exact key id: key_…"
    list_title = "API keys"
    list_intro = "Kept as hashes: nobody can read a key here. A lost one is revoked and replaced."
    empty_title = "No API key"
    empty_text = "Make one here, or with manage.py createkey. Events are submitted with it."

    def get_queryset(self, request: HttpRequest) -> Any:
        """Without the hashes."""
        return super().get_queryset(request).defer("secret_hash")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Those with the right to add keys."""
        return request.user.has_perm("deliveries.add_apikey")

    def may_revoke(self, request: HttpRequest) -> bool:
        """Those with the right to change keys."""
        return request.user.has_perm("deliveries.change_apikey")

    def get_urls(self) -> list[Any]:
        """The pages of the admin, and the one that revokes."""
        revoke = self.admin_site.admin_view(self.revoke_view)
        return [path("<uuid:key>/revoke/", revoke, name="deliveries_apikey_revoke"), *super().get_urls()]

    def name_of(self, key: Any) -> str:
        """`key_…`."""
        return ids.render(ids.KEY, key)

    def key_of(self, text: str) -> Any:
        """From `key_…` or a bare UUID."""
        return parsed(ids.KEY, text, super().key_of)

    def prepare(self, request: HttpRequest, rows: list[Any]) -> None:
        """One reading of the clock."""
        now = database_now()
        for row in rows:
            row.now = now

    @admin.display(description="Name")
    def name_shown(self, row: ApiKey) -> str | SafeString:
        """Its name."""
        return outside(row.name, 60)

    @admin.display(description="Public part")
    def lookup_shown(self, row: ApiKey) -> str | SafeString:
        """What is public of it."""
        return code(row.lookup)

    @admin.display(description="Tenant")
    def tenant_shown(self, row: ApiKey) -> str:
        """Whose."""
        return row.tenant_id or "Operator"

    @admin.display(description="Scopes")
    def scopes_shown(self, row: ApiKey) -> str:
        """What it may do."""
        return ", ".join(row.scopes)

    @admin.display(description="State")
    def state(self, row: Any) -> SafeString:
        """Whether it works."""
        return key_state(row, row.now)

    @admin.display(description="Last used")
    def last_used(self, row: ApiKey) -> str | SafeString:
        """To the minute."""
        return when(row.last_used_at, "Never")

    @admin.display(description="Made")
    def made(self, row: ApiKey) -> str | SafeString:
        """When."""
        return when(row.created_at)

    def page(self, request: HttpRequest, row: ApiKey) -> Page:
        """Everything but the key."""
        buttons = [Button("All keys", self.list_url())]
        if row.revoked_at is None and self.may_revoke(request):
            buttons.insert(0, Button("Revoke", reverse("admin:deliveries_apikey_revoke", args=(row.pk,)), primary=True))
        return Page(
            title=f"API key {self.name_of(row.key_id)}",
            heading=outside(row.name, 100),
            badges=(key_state(row, database_now()),),
            sections=(
                Facts(
                    "API key",
                    (
                        ("Id", code(self.name_of(row.key_id))),
                        ("Public part", code(row.lookup)),
                        ("Tenant", self.link(Tenant, row.tenant_id) if row.tenant_id else "Operator: all tenants"),
                        ("Scopes", ", ".join(Scope(s).label for s in row.scopes if s in Scope.values)),
                        ("Made", when(row.created_at)),
                        ("Expires", when(row.expires_at, "Never")),
                        ("Revoked", when(row.revoked_at, "No")),
                        ("Last used", when(row.last_used_at, "Never")),
                    ),
                ),
            ),
            buttons=tuple(buttons),
        )

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Make a key, and show it this once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = KeyForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            given = form.cleaned_data
            try:
                row, text = keys.new_key(
                    given["name"], given["scopes"], given["tenant"], expires_at=given["expires_at"]
                )
            except keys.BadKey as bad:
                form.add_error(None, str(bad))
            else:
                self.log_addition(request, row, "Made in the admin.")
                made = {
                    "heading": "The key is made",
                    "label": "API key",
                    "secret": text,
                    "text": "Send it as “Authorization: Bearer …”. Copy it now: only its hash is kept.",
                    "next_url": reverse("admin:deliveries_apikey_change", args=(row.pk,)),
                    "next_label": "To the key",
                }
                return self.draw(request, "admin/relay/once.html", made)
        context: dict[str, Any] = {
            "form": form,
            "heading": "New API key",
            "submit": "Make the key",
            "back": self.list_url(),
        }
        return self.draw(request, "admin/relay/form.html", context, 422 if form.errors else 200)

    def revoke_view(self, request: HttpRequest, key: Any) -> HttpResponse:
        """Revoke a key for good, after a question."""
        if not self.may_revoke(request):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(("GET", "POST"))
        row = self.get_queryset(request).filter(pk=key).first()
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(key))  # type: ignore[no-any-return]
        back = reverse("admin:deliveries_apikey_change", args=(row.pk,))
        if request.method == "POST":
            if keys.revoke(row.key_id):
                self.log_change(request, row, "Revoked.")
                messages.success(request, "The key is revoked. Every process refuses it within two seconds.")
            else:
                messages.warning(request, "The key had been revoked before.")
            return redirect(back)
        context = {
            "heading": "Revoke this key?",
            "subject": outside(f"{row.name} ({row.lookup}…)"),
            "text": "Whoever uses it is refused from now on. This cannot be undone; make a new key instead.",
            "confirm": "Revoke the key",
            "back": back,
        }
        return self.draw(request, "admin/relay/confirm.html", context)


def key_state(row: ApiKey, now: Any) -> SafeString:
    """Whether it works, and why not."""
    if row.revoked_at is not None:
        return badge("revoked", "bad", "Revoked")
    if row.expires_at is not None and row.expires_at <= now:
        return badge("expired", "bad", "Expired")
    return badge("active", "good", "Active")
