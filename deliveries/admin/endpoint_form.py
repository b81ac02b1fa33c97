"""What a person fills in to make or change an endpoint. The rules themselves are those of `deliveries.endpoints`."""

from __future__ import annotations

from typing import Any

from django import forms

from deliveries import endpoints
from deliveries.models import Endpoint, Tenant, default_schedule


class Parsed(forms.CharField):
    """Text that stands for a list or a mapping; it changed when what it stands for did."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compared by meaning, so that a blank line more is no change."""
        try:
            return bool(self.to_python(initial) != self.to_python(data))
        except forms.ValidationError:
            return True


class Lines(Parsed):
    """A list of texts, one on each line."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        """The lines that are not empty."""
        return [line.strip() for line in (value or "").splitlines() if line.strip()]


class Headers(Lines):
    """Header lines, `Name: value`."""

    def to_python(self, value: Any) -> Any:
        """Names with their values; a line without a colon, or a name that comes twice, is refused."""
        found: dict[str, str] = {}
        for number, line in enumerate(super().to_python(value), start=1):
            name, colon, text = line.partition(":")
            if not colon:
                raise forms.ValidationError(f"Line {number} is not of the form “Name: value”.")
            if name.strip() in found:
                raise forms.ValidationError(f"Line {number}: {name.strip()[:60]} is named twice.")
            found[name.strip()] = text.strip()
        return found


class Seconds(Parsed):
    """Numbers of seconds between commas."""

    def to_python(self, value: Any) -> Any:
        """The numbers."""
        try:
            return [int(part) for part in (value or "").replace(" ", "").split(",") if part]
        except ValueError:
            raise forms.ValidationError("Whole seconds between commas, such as 5, 300, 1800.") from None


class EndpointForm(forms.Form):
    """What a person may set. The rules themselves are those of `deliveries.endpoints`."""

    url = forms.CharField(label="URL", max_length=endpoints.URL_LENGTH, help_text="Where events are posted.")
    description = forms.CharField(
        required=False, max_length=endpoints.DESCRIPTION_LENGTH, widget=forms.Textarea(attrs={"rows": 2})
    )
    enabled = forms.BooleanField(required=False, help_text="Off: nothing is sent to it.")
    types = Lines(
        label="Event types", required=False, help_text="One on each line, * allowed: invoice.*. Empty: every type."
    )
    headers = Headers(
        label="Extra headers",
        required=False,
        help_text="One on each line: Name: value. Sent with every request, and seen by whoever may edit this endpoint.",
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
    in_flight = forms.IntegerField(label="At most in flight", min_value=1)
    timeout_ms = forms.IntegerField(
        label="Timeout (ms)", required=False, min_value=1, help_text="Empty: the deployment's default."
    )


class NewEndpointForm(EndpointForm):
    """The same, and whose it is."""

    tenant = forms.CharField(help_text="The tenant's id.")
    field_order = ("tenant",)

    def clean_tenant(self) -> str:
        """A tenant that exists."""
        tenant: str = self.cleaned_data["tenant"].strip()
        if not Tenant.objects.filter(pk=tenant).exists():
            raise forms.ValidationError("There is no tenant of this id.")
        return tenant


class EditEndpointForm(EndpointForm):
    """The same, and which state of the row the person saw."""

    seen = forms.CharField(widget=forms.HiddenInput)


def changes_of(cleaned: dict[str, Any]) -> endpoints.Changes:
    """Form values as the services take them: an empty query URL is none."""
    if cleaned.get("query_url") == "":
        cleaned["query_url"] = None
    return endpoints.Changes(**cleaned)  # type: ignore[typeddict-item,no-any-return]


def tell(form: forms.Form, refused: endpoints.EndpointRefused) -> None:
    for problem in refused.problems:
        form.add_error(problem.field if problem.field in form.fields else None, f"{problem.detail.rstrip('.')}.")


def defaults() -> dict[str, Any]:
    """What a new endpoint starts with: the defaults of its columns."""
    return initial(Endpoint(url="", retry_schedule=default_schedule()))


SAME = (
    "url",
    "description",
    "enabled",
    "idempotent",
    "window_hours",
    "retry_jitter",
    "retry_max_age_hours",
    "in_flight",
    "timeout_ms",
)
"""Columns that the form shows as they are."""


def initial(row: Endpoint) -> dict[str, Any]:
    """A row as the form shows it."""
    return {
        **{name: getattr(row, name) for name in SAME},
        "types": "\n".join(row.types),
        "headers": "\n".join(f"{name}: {text}" for name, text in row.headers.items()),
        "query_url": row.query_url or "",
        "retry_schedule": ", ".join(map(str, row.retry_schedule)),
    }
