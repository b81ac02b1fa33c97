"""The test database as processes of their own see it: committed rows only."""

from __future__ import annotations

from urllib.parse import urlencode

from django.apps import apps
from django.conf import settings
from django.db import connection

from deliveries.models import DEFAULT_TENANT, Tenant

APPS = ("ledger", "deliveries")


def url() -> str:
    """The DATABASE_URL of this session's test database."""
    parameters = connection.get_connection_params()
    known = ("dbname", "user", "password", "host", "port")
    return f"postgresql:///?{urlencode({key: parameters[key] for key in known if parameters.get(key)})}"


def empty() -> None:
    """Remove every row of ours and every bell that still hangs, but for the tenant that a migration makes."""
    silence()
    models = [model for name in APPS for model in apps.get_app_config(name).get_models()]
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in models)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables}")
    Tenant.objects.create(tenant_id=DEFAULT_TENANT, name="Default")


def silence() -> None:
    """Empty the broker: its queue, its schedule, and what it remembers."""
    settings.HUEY.storage.flush_all()


def scalar(query: str, *parameters: str | int) -> int:
    """The one number that a query answers."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])
