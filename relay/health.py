"""`/healthz`: this process answers. `/readyz`: it could do its work now."""

from __future__ import annotations

import logging

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from relay import functions

logger = logging.getLogger(__name__)

_migrated = False
_NOT_INSTALLED = (
    "The database lacks functions of this version, or does not let this login call them: run `manage.py migrate`."
)


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers at all; says nothing about the database."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the primary can be reached and written to and its migrations are applied; otherwise 503 and why."""
    problem = what_is_missing()
    if problem is None:
        return JsonResponse({"status": "ready"})
    return JsonResponse({"status": "not ready", "code": problem[0], "detail": problem[1]}, status=503)


def what_is_missing() -> tuple[str, str] | None:
    """A code and a sentence about the first thing that keeps Relay from working, or None."""
    global _migrated
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean")
            in_recovery, read_only = cursor.fetchone()
        if in_recovery or read_only:
            return "not_writable", "The database that answers is not the writable primary."
        # Migrations are only ever added, so one full look that found nothing missing is enough for this process.
        # Functions are also dropped, by a later version.
        if not _migrated:
            executor = MigrationExecutor(connection)
            if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                return "not_migrated", "Migrations are not applied: run `manage.py migrate`."
            _migrated = True
        if functions.missing():
            return "not_migrated", _NOT_INSTALLED
    except (DatabaseError, InterfaceError) as away:
        logger.warning("not ready: %s", type(away).__name__)
        return "database_away", "The database cannot be reached."
    return None
