"""Tenants and API keys: configuration, written through the ORM."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from ledger.models import Clock, TimeOrderedId

DEFAULT_TENANT = "default"


class UnknownTypes(models.TextChoices):
    """What becomes of an event whose type nobody described."""

    ACCEPT = "accept", "Accept events of unknown types"
    REFUSE = "refuse", "Refuse events of unknown types"


class Tenant(models.Model):
    """A customer of the producer; owns endpoints and events."""

    tenant_id = models.TextField(primary_key=True)
    name = models.TextField()
    unknown_types = models.TextField(
        choices=UnknownTypes.choices, db_default="", default="", blank=True, help_text="Empty: RELAY_UNKNOWN_TYPES."
    )
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta:
        db_table = "deliveries_tenant"
        ordering = ("tenant_id",)
        constraints = (
            models.CheckConstraint(condition=Q(tenant_id__regex=r"^[a-z0-9][a-z0-9_-]{0,62}$"), name="tenant_id_form"),
            models.CheckConstraint(
                condition=Q(unknown_types="") | Q(unknown_types__in=UnknownTypes.values), name="tenant_unknown_types"
            ),
        )

    def __str__(self) -> str:
        return self.tenant_id


class Scope(models.TextChoices):
    """What a key may do."""

    EVENTS_WRITE = "events:write", "Submit events"
    READ = "read", "Read"
    ENDPOINTS_WRITE = "endpoints:write", "Change endpoints"
    OPERATE = "operate", "Resolve, cancel, replay"
    ADMIN = "admin", "Make keys and tenants, expunge"


class ApiKey(models.Model):
    """A bearer key, kept as a hash. Without a tenant it is the operator's and may act for any tenant."""

    key_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, blank=True, related_name="keys")
    name = models.TextField()
    lookup = models.TextField(unique=True, help_text="The public part of the key, by which it is found.")
    secret_hash = models.BinaryField(help_text="SHA-256 of the whole key.")
    scopes = ArrayField(models.TextField(choices=Scope.choices))
    created_by = models.TextField(db_default="", default="", blank=True, help_text="Who made it.")
    created_at = models.DateTimeField(db_default=Clock())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "deliveries_api_key"
        ordering = ("-key_id",)
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.lookup}…)"
