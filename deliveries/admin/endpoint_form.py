"""What a person fills in to make or change an endpoint. The rules themselves are those of `deliveries.endpoints`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from django import forms

from deliveries import endpoints
from deliveries.admin.endpoint_fields import (
    Headers,
    Json,
    Lines,
    Pem,
    Seconds,
    SecretHeaders,
    SecretPem,
    SecretText,
    Words,
)
from deliveries.models import Endpoint, Envelope, Receives, Tenant, default_schedule
from deliveries.rules.auth import BASIC, BEARER, BODY, HEADER, OAUTH2, SECRET
from deliveries.signing import Signature

KEPT = "Kept encrypted, and never shown again. "
KINDS = (("", "None"), (BASIC, "User name and password"), (BEARER, "Bearer token"), (OAUTH2, "OAuth 2 client"))
AUTH = "auth_"
PARTS = {
    BASIC: ("username", "password"),
    BEARER: ("token",),
    OAUTH2: ("token_url", "client_id", "client_secret", "scopes", "audience", "auth_style"),
}
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Where to", "", ("tenant", "url", "description", "enabled", "must_verify")),
    (
        "What is sent",
        "",
        ("receives", "types", "filter", "envelope", "headers", "secret_headers", "secret_headers_removed"),
    ),
    (
        "Authentication",
        "Every request is signed, too. Nothing here is needed for that.",
        (
            "signature", "auth_kind", *(f"{AUTH}{part}" for parts in PARTS.values() for part in parts),
            "client_certificate", "client_key", "ca_certificates",
        ),
    ),
    ("Limits", "", ("in_flight", "rate_per_second", "rate_burst", "timeout_ms", "connect_timeout_ms")),
    ("Retry", "", ("retry_schedule", "retry_jitter", "retry_max_age_hours", "conflict_accepts")),
    ("Order", "", ("ordered", "order_patience")),
    ("Promises", "What the receiver promises decides what happens to a send whose outcome nobody knows.",
     ("idempotent", "window_hours", "query_url")),
)  # fmt: skip


UNMARKED = {"envelope", "receives", "signature", "auth_kind", "auth_auth_style"} | {
    f"{AUTH}{part}" for part in ("username", "password", "token", "token_url", "client_id", "client_secret")
}
"""Fields that Django need not have, and that are not called optional: they have a default, or their kind needs them."""


class EndpointForm(forms.Form):
    """What a person may set. The rules themselves are those of `deliveries.endpoints`."""

    url = forms.CharField(label="URL", max_length=endpoints.URL_LENGTH, help_text="Where events are posted.")
    description = forms.CharField(
        required=False, max_length=endpoints.DESCRIPTION_LENGTH, widget=forms.Textarea(attrs={"rows": 2})
    )
    enabled = forms.BooleanField(required=False, help_text="Off: nothing is sent to it.")
    must_verify = forms.BooleanField(
        label="Its URL must answer a challenge",
        required=False,
        help_text="On: it is off until then, and again when its URL changes. The API sends the challenge: "
        "POST /v1/endpoints/…/verify.",
    )
    types = Lines(
        label="Event types", required=False, help_text="One on each line, * allowed: invoice.*. Empty: every type."
    )
    filter = Json(
        required=False,
        help_text="JSON that the data must fit, such as "
        '{"customer": {"plan": {"$in": ["pro", "enterprise"]}}, "total": {"$gte": 100}}. Empty: any data.',
    )
    envelope = forms.ChoiceField(label="Body", required=False, choices=Envelope.choices)
    headers = Headers(
        label="Extra headers",
        required=False,
        help_text="One on each line: Name: value. Sent with every request, and seen by whoever may edit this endpoint.",
    )
    secret_headers = SecretHeaders(
        label="Secret headers: set or replace", required=False, help_text=f"As above. {KEPT}Those not named here stay."
    )
    auth_kind = forms.ChoiceField(label="The request authenticates with", required=False, choices=KINDS)
    auth_username = forms.CharField(label="User name", required=False, strip=False)
    auth_password = SecretText(label="Password", help_text=KEPT)
    auth_token = SecretText(label="Token", help_text=KEPT)
    auth_token_url = forms.CharField(label="Token URL", required=False, help_text="Where access tokens are had.")
    auth_client_id = forms.CharField(label="Client id", required=False)
    auth_client_secret = SecretText(
        label="Client secret", help_text=f"{KEPT}It is needed again when the token URL changes."
    )
    auth_scopes = Words(label="Scopes", required=False, help_text="Between spaces.")
    auth_audience = forms.CharField(label="Audience", required=False, help_text="Only if the token server wants one.")
    auth_auth_style = forms.ChoiceField(
        label="The client names itself",
        required=False,
        choices=((HEADER, "In the header (HTTP Basic)"), (BODY, "In the form")),
    )
    client_certificate = Pem(
        label="Client certificate",
        required=False,
        help_text="PEM, for receivers that demand one: its own first, then those up to its authority. "
        "Emptied: it is removed, with its key.",
    )
    client_key = SecretPem(label="Key of the client certificate: set or replace", required=False, help_text=KEPT)
    ca_certificates = Pem(
        label="Authorities",
        required=False,
        help_text="PEM: whom the receiver's certificate must come from. Empty: the public authorities.",
    )
    idempotent = forms.BooleanField(
        label="It drops duplicates by id",
        required=False,
        help_text="On: an unknown send is repeated by itself under the same id. Off, no query URL: a person decides.",
    )
    window_hours = forms.IntegerField(label="It remembers ids for (hours)", min_value=0)
    query_url = forms.CharField(
        label="Query URL", required=False, help_text="Where it answers what became of an operation. Empty: it does not."
    )
    retry_schedule = Seconds(
        required=False, help_text="Seconds before each further attempt, between commas. Empty: one attempt only."
    )
    retry_jitter = forms.FloatField(min_value=0, max_value=1, help_text="0 to 1: how far delays are spread.")
    retry_max_age_hours = forms.IntegerField(label="Give up after (hours)", min_value=1)
    conflict_accepts = forms.BooleanField(
        label="409 means that it had the event already",
        required=False,
        help_text="On: that answer counts as delivered. Off: as a refusal.",
    )
    ordered = forms.BooleanField(
        label="One at a time, in the order of acceptance",
        required=False,
        help_text="What cannot be delivered holds up everything behind it.",
    )
    order_patience = forms.IntegerField(
        label="Patience (attempts)",
        required=False,
        min_value=1,
        help_text="After so many the first in line is moved aside. Empty: never.",
    )
    in_flight = forms.IntegerField(label="At most in flight", min_value=1)
    rate_per_second = forms.FloatField(
        label="At most per second", required=False, help_text="Empty: no limit. What is too much waits."
    )
    rate_burst = forms.IntegerField(
        label="At once after a pause", required=False, min_value=1, help_text="Empty: as many as a second allows."
    )
    timeout_ms = forms.IntegerField(
        label="Timeout (ms)", required=False, min_value=1, help_text="Empty: the deployment's default."
    )
    connect_timeout_ms = forms.IntegerField(
        label="Timeout for connecting (ms)", required=False, min_value=1, help_text="Empty: 5 seconds."
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for kind, parts in PARTS.items():
            for part in parts:
                self.fields[f"{AUTH}{part}"].widget.attrs["data-for"] = kind
        for name in UNMARKED & self.fields.keys():
            self.fields[name].unmarked = True  # type: ignore[attr-defined]

    def sections(self) -> Iterator[tuple[str, str, list[forms.BoundField]]]:
        """Title, introduction and fields of each part of the form."""
        for title, intro, names in SECTIONS:
            yield title, intro, [self[name] for name in names if name in self.fields]


class NewEndpointForm(EndpointForm):
    """The same, whose it is, and how it is signed."""

    tenant = forms.CharField(help_text="The tenant's id.")
    signature = forms.ChoiceField(
        required=False,
        choices=((Signature.V1, "v1: a shared secret"), (Signature.V1A, "v1a: a key pair (ed25519)")),
        help_text="What most receivers know is v1.",
    )
    receives = forms.ChoiceField(
        required=False, choices=Receives.choices, help_text="Events, or what Relay itself has to say. It stays so."
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["secret_headers"].label = "Secret headers"
        self.fields["secret_headers"].help_text = f"As above. {KEPT}"
        self.fields["client_key"].label = "Key of the client certificate"

    def clean_tenant(self) -> str:
        """A tenant that exists."""
        tenant: str = self.cleaned_data["tenant"].strip()
        if not Tenant.objects.filter(pk=tenant).exists():
            raise forms.ValidationError("There is no tenant of this id.")
        return tenant


class EditEndpointForm(EndpointForm):
    """The same, which state of the row the person saw, and what can be taken away."""

    seen = forms.CharField(widget=forms.HiddenInput)
    secret_headers_removed = forms.MultipleChoiceField(
        label="Secret headers: remove", required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, row: Endpoint, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if row.secret_headers:
            names = [(name, name) for name in row.secret_headers]
            self.fields["secret_headers_removed"].choices = names  # type: ignore[attr-defined]
        else:
            del self.fields["secret_headers_removed"]
        stays = "One is kept. Empty: it stays."
        if row.auth is not None:
            self.fields[f"{AUTH}{SECRET[row.auth['kind']]}"].help_text = stays
        if row.client_key_sealed:
            self.fields["client_key"].help_text = stays


def changes_of(cleaned: dict[str, Any], changed: Collection[str]) -> endpoints.Changes:
    """What the services are to change: the `changed` fields, an empty text being none where there is such a thing."""
    names = (set(changed) & endpoints.Changes.__annotations__.keys()) - {"secret_headers"}
    names -= {name for name in ("envelope", "receives", "signature") if not cleaned.get(name)}
    changes = {name: cleaned[name] for name in names}
    if changes.get("query_url") == "":
        changes["query_url"] = None
    removed = dict.fromkeys(cleaned.get("secret_headers_removed") or ())
    if headers := removed | (cleaned.get("secret_headers") or {}):
        changes["secret_headers"] = headers
    if any(name.startswith(AUTH) for name in changed):
        changes["auth"] = _auth(cleaned)
    return endpoints.Changes(**changes)  # type: ignore[typeddict-item,no-any-return]


def _auth(cleaned: dict[str, Any]) -> dict[str, Any] | None:
    kind = cleaned.get("auth_kind")
    if not kind:
        return None
    parts = {part: cleaned.get(f"{AUTH}{part}") for part in PARTS[kind]}
    return {"kind": kind, **{part: value for part, value in parts.items() if value}}


def tell(form: forms.Form, refused: endpoints.EndpointRefused) -> None:
    """Every broken rule at its field."""
    for problem in refused.problems:
        field = problem.field.replace(".", "_")
        form.add_error(field if field in form.fields else None, f"{problem.detail.rstrip('.')}.")


def defaults() -> dict[str, Any]:
    """What a new endpoint starts with: the defaults of its columns."""
    return initial(Endpoint(url="", retry_schedule=default_schedule()))


SAME = (
    "url", "description", "enabled", "must_verify", "envelope", "client_certificate", "ca_certificates", "idempotent",
    "window_hours", "retry_jitter", "retry_max_age_hours", "conflict_accepts", "ordered", "order_patience", "in_flight",
    "rate_per_second", "rate_burst", "timeout_ms", "connect_timeout_ms",
)  # fmt: skip
"""Columns that the form shows as they are."""


def initial(row: Endpoint) -> dict[str, Any]:
    """A row as the form shows it."""
    auth, rate = row.auth or {}, row.rate_per_second
    return {
        **{name: getattr(row, name) for name in SAME},
        "types": "\n".join(row.types),
        "filter": "" if row.filter is None else json.dumps(row.filter, ensure_ascii=False, indent=2),
        "headers": "\n".join(f"{name}: {text}" for name, text in row.headers.items()),
        "query_url": row.query_url or "",
        "rate_per_second": int(rate) if rate is not None and rate.is_integer() else rate,
        "retry_schedule": ", ".join(map(str, row.retry_schedule)),
        "auth_kind": auth.get("kind", ""),
        **{f"{AUTH}{part}": auth[part] for part in auth if part not in ("kind", "scopes")},
        "auth_scopes": " ".join(auth.get("scopes", ())),
        "auth_auth_style": auth.get("auth_style", HEADER),
    }
