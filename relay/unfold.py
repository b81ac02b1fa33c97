"""The look of the admin: django-unfold's settings. `relay.settings` takes `UNFOLD` from here."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def environment(request: HttpRequest) -> list[str]:
    """The badge beside the title: the embedded database is marked, so that nobody takes it for production."""
    from django.conf import settings

    return ["Embedded database", "info"] if settings.RELAY_EMBEDDED else ["External database", "success"]


def _allowed(permission: str) -> Any:
    def check(request: HttpRequest) -> bool:
        return request.user.has_perm(permission)

    return check


def _item(title: str, icon: str, model: str, **more: Any) -> dict[str, Any]:
    app, name = model.split(".")
    link = reverse_lazy(f"admin:{app}_{name}_changelist")
    return {"title": title, "icon": icon, "link": link, "permission": _allowed(f"{app}.view_{name}"), **more}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Relay",
    "SITE_HEADER": "Relay",
    "SITE_SUBHEADER": "Webhook delivery",
    "SITE_SYMBOL": "conveyor_belt",
    "SITE_URL": None,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("relay/icon.svg")}],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "ENVIRONMENT": "relay.unfold.environment",
    "DASHBOARD_CALLBACK": "relay.dashboard.callback",
    "STYLES": [lambda request: static("relay/admin.css")],
    "SCRIPTS": [lambda request: static("relay/times.js")],
    "BORDER_RADIUS": "6px",
    # The scale of Tailwind's "teal": dark enough at 600 for white text, light enough at 400 for a dark page.
    "COLORS": {
        "primary": {
            "50": "oklch(98.4% .014 180.72)",
            "100": "oklch(95.3% .051 180.801)",
            "200": "oklch(91% .096 180.426)",
            "300": "oklch(85.5% .138 181.071)",
            "400": "oklch(77.7% .152 181.912)",
            "500": "oklch(70.4% .14 182.503)",
            "600": "oklch(51.1% .096 186.391)",
            "700": "oklch(43.7% .078 188.216)",
            "800": "oklch(38.6% .063 188.416)",
            "900": "oklch(32% .055 189)",
            "950": "oklch(27.7% .046 192.524)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "title": "",
                "items": [
                    {"title": "Dashboard", "icon": "monitoring", "link": reverse_lazy("admin:index")},
                    _item("Unknown operations", "help", "ledger.dispatch", badge="relay.dashboard.unknown_badge"),
                ],
            },
            {
                "title": "Traffic",
                "separator": True,
                "items": [
                    _item("Events", "mail", "deliveries.event"),
                    _item("Deliveries", "local_shipping", "ledger.task"),
                    _item("Operations", "bolt", "ledger.operation"),
                ],
            },
            {
                "title": "Ownership",
                "separator": True,
                "items": [
                    _item("Leases", "timer", "ledger.lease"),
                    _item("Takeover history", "swap_horiz", "ledger.takeover"),
                    _item("Fenced writes", "fence", "ledger.fencedwrite"),
                    _item("Resolutions", "gavel", "ledger.resolution"),
                ],
            },
            {
                "title": "Configuration",
                "separator": True,
                "items": [
                    _item("Endpoints", "dns", "deliveries.endpoint"),
                    _item("Tenants", "apartment", "deliveries.tenant"),
                    _item("API keys", "key", "deliveries.apikey"),
                    _item("People", "person", "auth.user"),
                    _item("Roles", "group", "auth.group"),
                ],
            },
        ],
    },
}
