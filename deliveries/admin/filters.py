"""Filters that find their rows by id order or through the queue, never by reading a whole table."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from deliveries import ids
from deliveries.models import Tenant
from ledger.admin.base import ChoiceFilter
from ledger.admin.text import database_now
from ledger.models import Dispatch, Operation, Run


def floor_id(moment: datetime) -> uuid.UUID:
    """The smallest version 7 UUID (RFC 9562) of that millisecond: ids below it were made before."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)


class AgeFilter(ChoiceFilter):
    """Rows by when they were made, as a range of their time-ordered ids."""

    parameter_name = "made"
    title = "Made"
    lengths: ClassVar = {
        "1h": timedelta(hours=1),
        "1d": timedelta(days=1),
        "7d": timedelta(days=7),
        "-1d": timedelta(days=1),
        "-7d": timedelta(days=7),
        "-30d": timedelta(days=30),
    }
    options = (
        ("1h", "In the last hour"),
        ("1d", "In the last day"),
        ("7d", "In the last 7 days"),
        ("-1d", "More than a day ago"),
        ("-7d", "More than 7 days ago"),
        ("-30d", "More than 30 days ago"),
    )

    def narrow(self, queryset: Any, value: str) -> Any:
        """Ids on one side of a moment."""
        edge = floor_id(database_now() - self.lengths[value])
        return queryset.filter(pk__lt=edge) if value.startswith("-") else queryset.filter(pk__gte=edge)


class TenantFilter(ChoiceFilter):
    """Rows of one tenant; they are indexed by tenant and id."""

    parameter_name = "tenant"
    title = "Tenant"
    shown: ClassVar[int] = 100

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """The first tenants by name; one that was asked for by its id is always among them."""
        found = list(Tenant.objects.values_list("tenant_id", flat=True)[: self.shown])
        asked = request.GET.get("tenant")
        if asked and asked not in found:
            found.append(asked)
        return [(tenant, tenant) for tenant in found] if len(found) > 1 or asked else ()

    def narrow(self, queryset: Any, value: str) -> Any:
        """Of this tenant."""
        return queryset.filter(tenant_id=value)


class EndpointFilter(ChoiceFilter):
    """Deliveries to one endpoint, named in the address (`?endpoint=ep_…`)."""

    parameter_name = "endpoint"
    title = "Endpoint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Only the one that was asked for."""
        asked = request.GET.get("endpoint")
        return ((asked, asked),) if asked else ()

    def narrow(self, queryset: Any, value: str) -> Any:
        """To this endpoint; none when it is no endpoint's id."""
        try:
            return queryset.filter(endpoint_id=ids.parse(ids.ENDPOINT, value))
        except ids.MalformedId:
            return queryset.none()


class DeliveryStatusFilter(ChoiceFilter):
    """Deliveries by derived status: those in the queue through it, the settled ones in bounded steps."""

    parameter_name = "status"
    title = "Status"
    options = (
        ("person", "Needs a person"),
        ("unknown", "Unknown"),
        ("quarantined", "Quarantined"),
        ("sending", "Sending"),
        ("waiting", "Pending or retrying"),
        ("delivered", "Delivered"),
        ("failed", "Failed"),
        ("cancelled", "Cancelled"),
    )
    scanning = frozenset({"waiting", "delivered", "failed", "cancelled"})
    by_queue: ClassVar = {
        "person": {"unknown_since__isnull": False, "due_at__isnull": True, "until__isnull": True},
        "unknown": {"unknown_since__isnull": False},
        "sending": {"until__isnull": False},
    }
    by_operation: ClassVar = {
        "waiting": "prepared",
        "delivered": "succeeded",
        "failed": "failed_final",
        "cancelled": "cancelled",
    }

    def narrow(self, queryset: Any, value: str) -> Any:
        """In this status."""
        by_queue = self.by_queue | {
            "quarantined": {"unknown_since__isnull": False, "operation__losses__gte": settings.RELAY_POISON_LOSSES}
        }
        if value in by_queue:
            # From the queue to runs to tasks, by primary keys: tasks have no index on their active run. An unsettled
            # operation is always of the active run, because a task with one cannot be replayed.
            queued = Dispatch.objects.filter(**by_queue[value]).values("run_id")
            return queryset.filter(pk__in=Run.objects.filter(pk__in=queued).values("task_id"))
        of_run = Operation.objects.filter(run_id=OuterRef("active_run_id"), status=self.by_operation[value])
        return queryset.filter(Exists(of_run))


class OperationStatusFilter(ChoiceFilter):
    """Operations by status: the unsettled ones through the queue, the settled ones in bounded steps."""

    parameter_name = "status"
    title = "Status"
    options = (
        ("unsettled", "Not settled"),
        ("prepared", "Prepared"),
        ("flight", "In flight"),
        ("unknown", "Unknown"),
        ("succeeded", "Succeeded"),
        ("failed_final", "Failed"),
        ("cancelled", "Cancelled"),
    )
    scanning = frozenset({"succeeded", "failed_final", "cancelled"})
    by_queue: ClassVar[dict[str, dict[str, Any]]] = {
        "unsettled": {"dispatch__isnull": False},
        "prepared": {"dispatch__isnull": False, "status": "prepared"},
        "flight": {"dispatch__until__isnull": False},
        "unknown": {"dispatch__unknown_since__isnull": False},
    }

    def narrow(self, queryset: Any, value: str) -> Any:
        """In this status."""
        return queryset.filter(**self.by_queue.get(value, {"status": value}))
