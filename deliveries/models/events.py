"""Events, which are records, and their types, which are configuration."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from deliveries import ids
from deliveries.models.tenants import Tenant
from ledger.models import Clock, LedgerModel, TimeOrderedId


class Event(LedgerModel):
    """One accepted payload, kept as the exact bytes. Its id is the `webhook-id` header and stays the same for ever.

    The id is the producer's own (`client_id`) where it chose one, and is made of `event_id` where it did not.
    """

    event_id = models.UUIDField(primary_key=True, editable=False)
    tenant = models.ForeignKey(Tenant, models.DO_NOTHING, related_name="events", db_index=False)
    client_id = models.TextField(null=True, blank=True, help_text="The id that its producer chose.")
    type = models.TextField()
    payload = models.BinaryField(help_text="The exact bytes of `data` as submitted.")
    digest = models.BinaryField(help_text="SHA-256 over the canonical form of the intent.")
    source = models.TextField(null=True, blank=True)
    metadata = models.JSONField(null=True, blank=True)
    headers = models.JSONField(
        null=True, blank=True, help_text="Sent with it, where the endpoint has none of the name."
    )
    deliver_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.TextField(null=True, blank=True)
    deliveries = models.IntegerField(help_text="How many endpoints wanted it when it was accepted.")
    created_at = models.DateTimeField(db_default=Clock())
    expunged_at = models.DateTimeField(null=True, blank=True, help_text="Its content was removed on request.")

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_event"
        ordering = ("-event_id",)
        indexes = (
            models.Index(fields=("tenant", "event_id"), name="event_by_tenant"),
            models.Index(fields=("event_id",), name="event_expunged", condition=Q(expunged_at__isnull=False)),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "idempotency_key"),
                condition=Q(idempotency_key__isnull=False),
                name="event_idempotency",
            ),
            models.UniqueConstraint(
                fields=("tenant", "client_id"), condition=Q(client_id__isnull=False), name="event_client_id"
            ),
        )

    def __str__(self) -> str:
        return self.client_id or ids.render(ids.EVENT, self.event_id)


class EventType(models.Model):
    """What a type of event means and what its payload looks like: one tenant's, or global.

    A tenant's own hides the global one of the same name.
    """

    event_type_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    tenant = models.ForeignKey(
        Tenant, models.PROTECT, null=True, blank=True, related_name="event_types", db_index=False,
        help_text="Empty: every tenant's.",
    )  # fmt: skip
    name = models.TextField()
    description = models.TextField(blank=True, default="", db_default="")
    schema = models.JSONField(null=True, blank=True, help_text="A JSON Schema that payloads must keep.")
    deprecated = models.BooleanField(default=False, db_default=False)
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Since then no event of the type is accepted.")
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta:
        db_table = "deliveries_event_type"
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("tenant", "name"), name="event_type_name", nulls_distinct=False),
            models.CheckConstraint(condition=Q(name__regex=r"^[A-Za-z0-9_.-]{1,128}$"), name="event_type_name_form"),
        )

    def __str__(self) -> str:
        return self.name
