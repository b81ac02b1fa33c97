"""Replacing an endpoint's signing secret: asked for on a page of its own, and the new secret shown this once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from deliveries import rotation
from deliveries.models import Endpoint
from deliveries.rotation import LONGEST_OVERLAP, OVERLAP, Rotated, RotationRefused
from deliveries.sealing import SealBroken
from deliveries.signing import Signature
from ledger.admin.base import ReadOnlyAdmin
from ledger.admin.text import database_now, when

HOUR = timedelta(hours=1)


class RotationForm(forms.Form):
    """How the secret is replaced."""

    overlap_hours = forms.IntegerField(
        label="Sign with the former secret too, for (hours)",
        min_value=0,
        max_value=LONGEST_OVERLAP // HOUR,
        initial=OVERLAP // HOUR,
        help_text="The receiver has so long to take the new one. 0, for a secret that leaked: it and every earlier one "
        "stop at once.",
    )
    signature = forms.ChoiceField(
        label="Kind",
        required=False,
        choices=[
            ("", "As it was"),
            (Signature.V1, "v1: HMAC-SHA256, a secret that both sides hold"),
            (Signature.V1A, "v1a: Ed25519, a public key for the receiver"),
        ],
    )
    secret = forms.CharField(
        label="A secret of your own",
        required=False,
        max_length=200,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="whsec_… or whsk_… Empty: one is made.",
    )


def rotate_view(owner: ReadOnlyAdmin) -> Callable[..., HttpResponse]:
    """The view, as a page of `owner`'s. A report of an error shows nothing of what was posted."""

    @sensitive_post_parameters()
    @sensitive_variables()
    def view(request: HttpRequest, key: Any) -> HttpResponse:
        return _rotate(owner, request, key)

    return view


@sensitive_variables()
def _rotate(owner: ReadOnlyAdmin, request: HttpRequest, key: Any) -> HttpResponse:
    """Ask how, replace the secret, and show the new one. It takes until former requests are over."""
    if not request.user.has_perm("deliveries.change_endpoint"):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(("GET", "POST"))
    row = Endpoint.objects.filter(pk=key, deleted_at=None).first()
    if row is None:
        return owner._get_obj_does_not_exist_redirect(request, owner.opts, str(key))  # type: ignore[no-any-return]  # noqa: SLF001 - Django's own
    form = RotationForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            made = rotation.rotate(
                row.endpoint_id,
                overlap=given["overlap_hours"] * HOUR,
                secret=given["secret"] or None,
                signature=Signature(given["signature"]) if given["signature"] else None,
            )
        except RotationRefused as refused:
            form.add_error(refused.field, f"{refused.detail.rstrip('.')}.")
        else:
            if made is None:  # deleted at this moment
                return owner._get_obj_does_not_exist_redirect(request, owner.opts, str(key))  # type: ignore[no-any-return]  # noqa: SLF001
            owner.log_change(request, row, "The signing secret was replaced.")
            return owner.draw(request, "admin/relay/once.html", _shown(row, made))
    context = {
        "form": form,
        "heading": f"Replace the signing secret of {owner.name_of(row.pk)}?",
        "submit": "Replace the secret",
        "back": reverse("admin:deliveries_endpoint_change", args=(row.pk,)),
    }
    return owner.draw(request, "admin/relay/form.html", context, 422 if form.errors else 200)


def _shown(row: Endpoint, made: Rotated) -> dict[str, Any]:
    return {
        "heading": "The secret is replaced",
        "label": "The new signing secret",
        "secret": made.secret,
        "text": format_html("{}{}{}", _what_to_do(made), _public_keys(made), _warning(made)),
        "next_url": reverse("admin:deliveries_endpoint_change", args=(row.pk,)),
        "next_label": "To the endpoint",
    }


def _what_to_do(made: Rotated) -> SafeString:
    if made.former_until is None:
        return format_html("{}", "Requests are signed with this secret alone. Copy it now: it is never shown again.")
    return format_html(
        "Requests are signed with this secret and, until {}, with the former one too. Give it to the receiver until "
        "then. Copy it now: it is never shown again.",
        when(made.former_until),
    )


def _public_keys(made: Rotated) -> SafeString:
    if made.public_key is None:
        return SafeString("")
    return format_html(
        " The receiver needs only the public keys: <code class='relay-code'>{}</code> for deliveries, "
        "<code class='relay-code'>{}</code> for questions.",
        made.public_key,
        made.question_key,
    )


def _warning(made: Rotated) -> str:
    if made.settled:
        return ""
    return (
        " A request that was made before may still be out, and only the former secret verifies it: let the receiver "
        "take both for a while."
    )


def secret_fact(row: Endpoint) -> str | SafeString:
    """What is said of an endpoint's signing secrets on its page."""
    told = "Kept encrypted; shown only when it was made"
    try:
        ends = [until for _, until in rotation.former_of(row.former_secrets)]
    except SealBroken as damaged:
        return f"{told}. Nothing is sent: {damaged}."
    if not ends:
        return told
    now = database_now()
    living = [until for until in ends if until > now]
    if not living:
        return told
    return format_html(
        "{}. {} former {} too, the last until {}",
        told,
        len(living),
        "one signs" if len(living) == 1 else "ones sign",
        when(max(living)),
    )
