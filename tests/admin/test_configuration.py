"""Endpoints, tenants and keys are made and changed here through the same services as everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from deliveries import keys
from deliveries.models import ApiKey, Endpoint, Tenant
from tests.admin import rows

NEW = {
    "tenant": "default", "url": "http://127.0.0.1:9/new", "description": "", "enabled": "on",
    "types": "invoice.*\n\nuser.created",
    "headers": "X-Team: core", "idempotent": "on", "window_hours": "24", "query_url": "", "retry_schedule": "5, 60",
    "retry_jitter": "0.1", "retry_max_age_hours": "12", "in_flight": "4", "timeout_ms": "",
}  # fmt: skip


def edit(client: Client, key: Any, **changes: str) -> Any:
    """Open the form, change some fields and send it, as a browser does."""
    path = f"/admin/deliveries/endpoint/{key}/edit/"
    form = client.get(path).context["form"]
    shown = {name: form[name].value() for name in form.fields}
    sent = {name: "on" if value is True else value for name, value in shown.items() if value not in (None, False)}
    return client.post(path, {**sent, **changes})


def test_an_endpoint_is_made_and_its_secret_shown_once(administrator: Client) -> None:
    response = administrator.post("/admin/deliveries/endpoint/add/", NEW)
    page = response.content.decode()
    assert response.status_code == 200
    assert "whsec_" in page
    assert "no-store" in response["Cache-Control"]
    row = Endpoint.objects.get(url=NEW["url"])
    assert (row.types, row.headers, row.retry_schedule) == (["invoice.*", "user.created"], {"X-Team": "core"}, [5, 60])
    assert (row.window_hours, row.in_flight, row.timeout_ms, row.query_url) == (24, 4, None, None)
    assert "whsec_" not in administrator.get(f"/admin/deliveries/endpoint/{row.pk}/change/").content.decode()
    assert LogEntry.objects.filter(object_id=str(row.pk)).count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "http://10.0.0.1/"), ("url", ""), ("types", "no spaces please"), ("headers", "webhook-id: mine"),
        ("headers", "no colon"), ("retry_schedule", "soon"), ("in_flight", "0"), ("retry_jitter", "2"),
        ("tenant", "nobody"), ("timeout_ms", "99999999"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_shown_at_its_field_and_nothing_is_made(administrator: Client, field: str, value: str) -> None:
    response = administrator.post("/admin/deliveries/endpoint/add/", {**NEW, field: value})
    assert response.status_code == 422
    assert field in response.context["form"].errors
    assert not Endpoint.objects.exists()


def test_an_edit_writes_only_what_was_changed(administrator: Client) -> None:
    key = rows.endpoint(types=["a.b"], headers={"X-A": "1"}, query_url="http://127.0.0.1:9/ask")
    assert edit(administrator, key, description="changed").status_code == 302
    row = Endpoint.objects.get(pk=key)
    assert (row.description, row.types, row.headers, row.query_url) == (
        "changed",
        ["a.b"],
        {"X-A": "1"},
        "http://127.0.0.1:9/ask",
    )
    logged = LogEntry.objects.get(object_id=str(key)).get_change_message()
    assert "description" in logged
    assert "types" not in logged


def test_an_edit_of_a_form_that_somebody_else_overtook_is_refused(administrator: Client) -> None:
    key = rows.endpoint()
    response = edit(administrator, key, description="late", seen="2020-01-01T00:00:00+00:00")
    assert response.status_code == 409
    assert Endpoint.objects.get(pk=key).description == ""


def test_switching_off_and_deleting_keep_the_row(administrator: Client) -> None:
    key = rows.endpoint()
    path = f"/admin/deliveries/endpoint/{key}/remove/"
    assert b"cannot be undone" in administrator.get(path).content
    assert Endpoint.objects.get(pk=key).deleted_at is None
    assert administrator.post(path).status_code == 302
    assert Endpoint.objects.get(pk=key).deleted_at is not None
    assert administrator.get(f"/admin/deliveries/endpoint/{key}/edit/").status_code == 302


@pytest.mark.parametrize("verb", ["edit", "remove"])
def test_a_viewer_cannot_change_endpoints(person: Callable[..., Client], verb: str) -> None:
    key = rows.endpoint()
    viewer = person("deliveries.view_endpoint")
    assert viewer.get(f"/admin/deliveries/endpoint/{key}/change/").status_code == 200
    assert viewer.post(f"/admin/deliveries/endpoint/{key}/{verb}/").status_code == 403
    assert viewer.get("/admin/deliveries/endpoint/add/").status_code == 403


def test_a_key_is_made_works_and_is_shown_once(administrator: Client) -> None:
    response = administrator.post(
        "/admin/deliveries/apikey/add/", {"name": "billing", "tenant": "", "scopes": ["read", "operate"]}
    )
    text = response.context["secret"]
    assert response.status_code == 200
    found = keys.authenticate(text)
    assert found is not None
    assert (found.name, found.scopes, found.tenant_id) == ("billing", ["read", "operate"], None)
    for page in ("/admin/deliveries/apikey/", f"/admin/deliveries/apikey/{found.pk}/change/"):
        assert text not in administrator.get(page).content.decode()


def test_a_key_needs_a_scope(administrator: Client) -> None:
    assert administrator.post("/admin/deliveries/apikey/add/", {"name": "billing", "tenant": ""}).status_code == 422
    assert not ApiKey.objects.exists()


def test_a_revoked_key_is_refused_from_then_on(administrator: Client) -> None:
    row, text = keys.new_key("billing", ["read"], None)
    path = f"/admin/deliveries/apikey/{row.pk}/revoke/"
    assert b"cannot be undone" in administrator.get(path).content
    assert keys.authenticate(text) is not None
    assert administrator.post(path).status_code == 302
    assert keys.authenticate(text) is None
    assert "Revoked" in administrator.get(f"/admin/deliveries/apikey/{row.pk}/change/").content.decode()


def test_a_viewer_cannot_make_or_revoke_keys(person: Callable[..., Client]) -> None:
    key = rows.api_key()
    viewer = person("deliveries.view_apikey")
    assert viewer.get("/admin/deliveries/apikey/").status_code == 200
    assert viewer.post("/admin/deliveries/apikey/add/", {"name": "x", "scopes": ["read"]}).status_code == 403
    assert viewer.post(f"/admin/deliveries/apikey/{key}/revoke/").status_code == 403
    assert ApiKey.objects.get(pk=key).revoked_at is None


def test_a_tenant_is_made_once(administrator: Client) -> None:
    new = {"tenant_id": "acme", "name": "Acme"}
    assert administrator.post("/admin/deliveries/tenant/add/", new).status_code == 302
    assert administrator.post("/admin/deliveries/tenant/add/", new).status_code == 422
    assert administrator.post("/admin/deliveries/tenant/add/", {"tenant_id": "A b", "name": "x"}).status_code == 422
    assert Tenant.objects.filter(pk="acme").count() == 1
