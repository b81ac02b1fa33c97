"""Which address answers what."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from relay import health
from relay.api import api, no_route

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("v1", no_route),
    path("v1/", api.urls),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
]
