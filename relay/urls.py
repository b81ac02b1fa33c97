"""Which address answers what."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path, re_path
from django.views.generic import RedirectView

from relay import health
from relay.api import api, no_route

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("v1", no_route),
    path("v1/", api.urls),
    # What a path of Django's does not match: one with a line feed in it.
    re_path(r"^v1/[\s\S]*", no_route),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
]
