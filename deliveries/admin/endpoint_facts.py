"""What the page of an endpoint tells about it. No secret is among it: of those only that they are there."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from deliveries.admin.rotation import secret_fact
from deliveries.admin.status import promise
from deliveries.health import Health
from deliveries.models import Endpoint, Envelope
from deliveries.rules.auth import BASIC, BEARER
from deliveries.rules.certificates import told
from ledger.admin.text import badge, outside, when


def state_badge(row: Endpoint, doing: Health | None) -> SafeString:
    """Whether it receives, and why not; and how that goes."""
    if row.deleted_at is not None:
        return badge("deleted", "plain", "Deleted")
    if not row.enabled:
        return format_html("{} {}", badge("disabled", "bad", "Disabled"), outside(row.disabled_reason, 120))
    enabled = badge("enabled", "good", "Enabled")
    if doing is not None and doing.breaker != "closed":
        return format_html("{} {}", enabled, badge(doing.breaker, "bad", BREAKERS[doing.breaker]))
    if doing is not None and doing.failing_since is not None:
        return format_html("{} {}", enabled, badge("failing", "warn", "Failing"))
    return enabled


BREAKERS = {"closed": "Closed", "open": "Breaker open", "half_open": "Breaker half open"}


def health_facts(row: Endpoint, doing: Health | None) -> list[tuple[str, Any]]:
    """How sending to it has been going."""
    if doing is None:
        return [("Breaker", "Closed"), ("Failing since", "It is not failing")]
    failing = doing.failing_since is not None
    return [
        ("Breaker", BREAKERS[doing.breaker]),
        ("Open until", when(doing.open_until, "It is not") if doing.breaker == "open" else "It is not"),
        ("Failing since", when(doing.failing_since, "It is not failing")),
        ("Deliveries failed since", doing.failing_count if failing else "—"),
        ("Will be disabled", when(doing.disables_at, "No") if row.enabled else "No"),
        ("Last accepted", when(doing.accepted_at, "Not seen yet")),
        ("Last failed", when(doing.failed_at, "Not seen yet")),
        ("Last error", outside(doing.last_error, 500)),
    ]


def nothing_yet(row: Endpoint) -> str:
    """What to expect of an endpoint without deliveries."""
    if row.deleted_at is not None:
        return "Nothing was ever sent here. It is deleted: no event goes to it any more."
    if not row.enabled:
        return "Nothing was sent here yet. It is disabled: events that are accepted now do not go to it."
    return "Nothing was sent here yet. It gets events that are accepted from now on."


def receiver_facts(row: Endpoint) -> list[tuple[str, Any]]:
    """Where it is and what it wants."""
    return [
        ("URL", outside(row.url, 2048)),
        ("Description", outside(row.description, 2000)),
        ("Tenant", row.tenant_id),
        ("Event types", outside(", ".join(row.types), 4000) if row.types else "All"),
        ("Filter", "None" if row.filter is None else outside(json.dumps(row.filter, ensure_ascii=False), 9000)),
        ("Body", Envelope(row.envelope).label),
        ("Extra headers", outside(", ".join(row.headers), 4000) if row.headers else "None"),
        ("It promises", promise(row)),
        ("Query URL", outside(row.query_url, 2048)),
        ("Made", when(row.created_at)),
        ("Changed", when(row.updated_at)),
        ("Deleted", when(row.deleted_at, "No")),
    ]


def sending_facts(row: Endpoint) -> list[tuple[str, Any]]:
    """How it is sent to."""
    schedule = ", ".join(f"{seconds} s" for seconds in row.retry_schedule) or "None: one attempt only"
    return [
        ("Retry after", schedule),
        ("Jitter", f"{row.retry_jitter:g}"),
        ("Give up after", f"{row.retry_max_age_hours} hours"),
        ("409 means", "It had the event already" if row.conflict_accepts else "A refusal"),
        ("Order", _order(row)),
        ("At most in flight", row.in_flight),
        ("At most per second", _rate(row)),
        ("Timeout", f"{row.timeout_ms} ms" if row.timeout_ms else "The deployment's default"),
        ("Timeout for connecting", f"{row.connect_timeout_ms} ms" if row.connect_timeout_ms else "5000 ms"),
        ("Paused until", when(row.blocked_until, "It is not")),
    ]


def authentication_facts(row: Endpoint) -> list[tuple[str, Any]]:
    """How a request shows where it comes from, and whom it trusts."""
    return [
        ("Signing secret", secret_fact(row)),
        ("The request authenticates", _auth(row)),
        ("Secret headers", outside(", ".join(row.secret_headers), 4000) if row.secret_headers else "None"),
        ("Client certificate", _certificates(row.client_certificate) or "None"),
        ("Its key", "Kept encrypted" if row.client_key_sealed else "None"),
        ("Authorities", _certificates(row.ca_certificates) or "The public ones"),
    ]


def _auth(row: Endpoint) -> str | SafeString:
    if row.auth is None:
        return "By its signature alone"
    kind = row.auth["kind"]
    if kind == BASIC:
        return format_html("As user {}, with a password that is kept encrypted", outside(row.auth["username"]))
    if kind == BEARER:
        return "With a token that is kept encrypted"
    return format_html(
        "With access tokens of {}, as client {}", outside(row.auth["token_url"], 2048), outside(row.auth["client_id"])
    )


def _certificates(text: str) -> SafeString:
    return format_html_join(
        "", '<div class="relay-stack">{}</div>', ((outside(line),) for line in (told(text) if text else ()))
    )


def _order(row: Endpoint) -> str:
    if not row.ordered:
        return "None"
    if row.order_patience is None:
        return "Of acceptance; what cannot be delivered holds up the rest"
    return f"Of acceptance; the first is moved aside after {row.order_patience} attempts"


def _rate(row: Endpoint) -> str:
    if row.rate_per_second is None:
        return "No limit"
    at_once = "" if row.rate_burst is None else f", {row.rate_burst} at once after a pause"
    return f"{row.rate_per_second:g}{at_once}"
