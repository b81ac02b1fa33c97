"""The form of an endpoint: every setting, in parts; and secrets that are set, replaced and removed but never shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from deliveries import authorization
from deliveries.admin.endpoint_form import SECTIONS, EditEndpointForm
from deliveries.endpoints import Changes
from deliveries.models import Endpoint
from tests.admin.test_configuration import NEW, edit
from tests.support.certificates import Authority

pytestmark = pytest.mark.django_db

AUTHORITY = Authority("Our own authority")
CLIENT = AUTHORITY.sign("relay")
TOKENS = "http://127.0.0.1:9/token"
SECRETS = ("hunter-header", "hunter-basic", "hunter-bearer", "hunter-oauth2", CLIENT.key.splitlines()[1])
FULL = {
    **NEW,
    "filter": '{"total": {"$gte": 100}}', "envelope": "standard", "secret_headers": "X-Key: hunter-header\nX-Two: 2",
    "auth_kind": "oauth2", "auth_token_url": TOKENS, "auth_client_id": "relay", "auth_client_secret": "hunter-oauth2",
    "auth_scopes": "a  b", "auth_audience": "", "auth_auth_style": "body", "signature": "v1a",
    "client_certificate": CLIENT.certificate.replace("\n", "\r\n"), "client_key": CLIENT.key.replace("\n", "\r\n"),
    "ca_certificates": AUTHORITY.pem, "conflict_accepts": "on", "ordered": "on", "order_patience": "3",
    "rate_per_second": "2.5", "rate_burst": "10", "connect_timeout_ms": "900", "receives": "operational",
}  # fmt: skip


def made(client: Client, **changes: str) -> Endpoint:
    response = client.post("/admin/deliveries/endpoint/add/", {**FULL, **changes})
    assert response.status_code == 200, response.context["form"].errors
    return Endpoint.objects.get()


def pages(client: Client, row: Endpoint) -> str:
    """The text of every page about it, and of what was logged."""
    paths = ("", f"{row.pk}/change/", f"{row.pk}/edit/", f"{row.pk}/remove/", "add/")
    shown = [client.get(f"/admin/deliveries/endpoint/{path}").content.decode() for path in paths]
    return "".join([*shown, *(entry.change_message for entry in LogEntry.objects.all())])


def test_every_setting_has_its_place_in_the_form(administrator: Client) -> None:
    row = made(administrator)
    assert row.filter == {"total": {"$gte": 100}}
    assert (row.receives, row.must_verify, row.enabled) == ("operational", False, True)
    assert (row.envelope, row.conflict_accepts, row.ordered, row.order_patience) == ("standard", True, True, 3)
    assert (row.rate_per_second, row.rate_burst, row.connect_timeout_ms) == (2.5, 10, 900)
    assert row.auth == {
        "kind": "oauth2", "token_url": TOKENS, "client_id": "relay", "scopes": ["a", "b"], "auth_style": "body",
    }  # fmt: skip
    assert dict(authorization.secret_headers(row)) == {"X-Key": "hunter-header", "X-Two": "2"}
    assert authorization.secret_of(row) == "hunter-oauth2"
    assert authorization.tls(row).client_key == CLIENT.key.encode()
    assert (row.client_certificate, row.ca_certificates) == (CLIENT.certificate, AUTHORITY.pem)

    in_form = set(EditEndpointForm(row).fields) | {"tenant", "signature", "receives"}
    listed = {name for _, _, names in SECTIONS for name in names}
    assert in_form - {"seen"} == listed
    not_in_parts = listed - {name for name in listed if name.startswith("auth_")}
    assert set(Changes.__annotations__) - {"auth", "secret"} == not_in_parts - {"tenant", "secret_headers_removed"}


def test_what_must_be_verified_first_is_off_until_then(administrator: Client) -> None:
    row = made(administrator, must_verify="on")
    assert (row.must_verify, row.enabled, row.verified_at) == (True, False, None)
    assert "its URL is not verified" in pages(administrator, row)


def test_a_page_tells_that_secrets_are_there_and_never_what_they_are(administrator: Client) -> None:
    row = made(administrator)
    text = pages(administrator, row)
    assert not [secret for secret in SECRETS if secret in text]
    for words in (
        "X-Key, X-Two",
        "CN=Our own authority",
        "CN=relay",
        "as client",
        "2.5, 10 at once",
        "after 3 attempts",
    ):
        assert words in text, words


def test_a_form_that_is_refused_does_not_repeat_the_secrets_that_were_sent(administrator: Client) -> None:
    for changes in ({"url": "http://10.0.0.1/"}, {"auth_client_id": ""}, {"window_hours": "x"}):
        response = administrator.post("/admin/deliveries/endpoint/add/", {**FULL, **changes})
        assert response.status_code == 422
        assert not [secret for secret in SECRETS if secret in response.content.decode()]
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filter", "{"), ("filter", "[]"), ("filter", '{"a": {"$nope": 1}}'), ("filter", '{"a": NaN}'),
        ("envelope", "xml"), ("secret_headers", "no colon hunter-header"), ("secret_headers", "Host: x"),
        ("secret_headers", "X-Team: x"), ("auth_kind", "digest"), ("auth_token_url", "http://10.0.0.1/"),
        ("auth_token_url", ""), ("auth_client_secret", ""), ("auth_scopes", 'a"b'), ("client_certificate", "x"),
        ("client_certificate", ""), ("client_key", "x"), ("client_key", ""), ("ca_certificates", "x"),
        ("order_patience", "0"), ("order_patience", "500"), ("rate_per_second", "0"), ("rate_per_second", ""),
        ("rate_per_second", "nan"), ("rate_burst", "0"), ("connect_timeout_ms", "99999"), ("signature", "v9"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_shown_at_a_field_of_the_form(administrator: Client, field: str, value: str) -> None:
    response = administrator.post("/admin/deliveries/endpoint/add/", {**FULL, field: value})
    errors = response.context["form"].errors
    assert response.status_code == 422
    assert not errors.get("__all__"), errors
    beside = {"rate_per_second": "rate_burst", "client_certificate": "client_certificate"}
    assert field in errors or beside[field] in errors, errors
    assert not Endpoint.objects.exists()


def test_secrets_stay_when_nothing_is_typed_and_are_replaced_and_removed_when_it_is_said(administrator: Client) -> None:
    row = made(administrator)
    assert edit(administrator, row.pk, description="changed").status_code == 302
    before, after = vars(row), vars(Endpoint.objects.get(pk=row.pk))
    assert {name for name in after if after[name] != before[name]} == {"description", "updated_at", "_state"}

    def changed(**changes: Any) -> Endpoint:
        response = edit(administrator, row.pk, **changes)
        assert response.status_code == 302, response.context["form"].errors
        return Endpoint.objects.get(pk=row.pk)

    row = changed(secret_headers="x-two: 3\nX-Three: 4", secret_headers_removed=["X-Key"])
    assert dict(authorization.secret_headers(row)) == {"x-two": "3", "X-Three": "4"}
    row = changed(auth_scopes="c")
    assert (row.auth or {})["scopes"] == ["c"]
    assert authorization.secret_of(row) == "hunter-oauth2"
    row = changed(auth_kind="basic", auth_username="relay", auth_password=" hunter-basic ")
    assert row.auth == {"kind": "basic", "username": "relay"}
    assert authorization.secret_of(row) == " hunter-basic "
    row = changed(auth_kind="")
    assert (row.auth, row.auth_sealed) == (None, "")
    row = changed(client_certificate="")
    assert (row.client_certificate, row.client_key_sealed) == ("", "")
    row = changed(ca_certificates="", filter="", query_url="", rate_per_second="", rate_burst="")
    assert (row.ca_certificates, row.filter, row.query_url, row.rate_per_second) == ("", None, None, None)


def test_an_edit_without_the_secret_of_another_kind_is_refused_at_its_field(administrator: Client) -> None:
    row = made(administrator)
    response = edit(administrator, row.pk, auth_kind="bearer")
    assert list(response.context["form"].errors) == ["auth_token"]
    response = edit(administrator, row.pk, auth_token_url=f"{TOKENS}/other")
    assert list(response.context["form"].errors) == ["auth_client_secret"]


def test_what_was_changed_is_logged_by_name_alone(administrator: Client) -> None:
    row = made(administrator)
    edit(administrator, row.pk, auth_client_secret="hunter-other", secret_headers="X-Key: hunter-header-2")
    message = LogEntry.objects.filter(action_flag=2).get().get_change_message()
    assert "auth" in message
    assert "secret_headers" in message
    assert "hunter" not in LogEntry.objects.filter(action_flag=2).get().change_message
