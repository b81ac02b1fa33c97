"""Endpoints, which are configuration and written through the ORM, and how they have been doing."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, Value

from deliveries import ids
from deliveries.models.tenants import Tenant
from ledger.models import Clock, LedgerModel, TimeOrderedId

DEFAULT_SCHEDULE = (5, 300, 1800, 7200, 18000, 36000, 36000)


def default_schedule() -> list[int]:
    """The retry schedule of an endpoint that names none, in seconds."""
    return list(DEFAULT_SCHEDULE)


class Envelope(models.TextChoices):
    """What a receiver gets as the body."""

    NONE = "none", "The data, byte for byte"
    STANDARD = "standard", "The data, its type and its time (Standard Webhooks)"


class DisabledBy(models.TextChoices):
    """Who disabled an endpoint."""

    REQUEST = "request", "Somebody who asked for it"
    RELAY = "relay", "Relay, because it kept failing"
    RECEIVER = "receiver", "Its receiver, in an answer"
    VERIFICATION = "verification", "Nobody: its URL is yet to be verified"


class Receives(models.TextChoices):
    """Whose events an endpoint gets."""

    EVENTS = "events", "What is submitted"
    OPERATIONAL = "operational", "What Relay says about its own tenant"
    OPERATIONAL_ALL = "operational_all", "What Relay says about every tenant"


class Endpoint(models.Model):
    """A receiver's URL with its secret, filter, retry policy, limits and capability."""

    endpoint_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="endpoints", db_index=False)
    url = models.TextField()
    description = models.TextField(blank=True, default="")
    types = ArrayField(models.TextField(), default=list, blank=True, help_text="Event types, `*` allowed; empty: all.")
    filter = models.JSONField(null=True, blank=True, help_text="What the payload must be like; empty: anything.")
    headers = models.JSONField(default=dict, blank=True)
    secret_headers = ArrayField(models.TextField(), default=list, db_default=[], blank=True, help_text="Their names.")
    secret_headers_sealed = models.TextField(
        default="", db_default="", blank=True, help_text="A JSON object, encrypted."
    )
    auth = models.JSONField(null=True, blank=True, help_text="How to authenticate, without what is secret of it.")
    auth_sealed = models.TextField(default="", db_default="", blank=True, help_text="What is secret of it, encrypted.")
    client_certificate = models.TextField(default="", db_default="", blank=True, help_text="PEM, for mutual TLS.")
    client_key_sealed = models.TextField(default="", db_default="", blank=True, help_text="Its key, encrypted.")
    ca_certificates = models.TextField(default="", db_default="", blank=True, help_text="PEM; empty: the public ones.")
    receives = models.TextField(choices=Receives.choices, default=Receives.EVENTS, db_default=Receives.EVENTS)
    must_verify = models.BooleanField(
        default=False, db_default=False, help_text="It is enabled only once its URL answered a challenge."
    )
    verified_at = models.DateTimeField(null=True, blank=True)
    envelope = models.TextField(choices=Envelope.choices, default=Envelope.NONE, db_default=Envelope.NONE)
    secret_sealed = models.TextField(help_text="The signing secret, encrypted and bound to this row.")
    former_secrets = models.JSONField(
        default=list,
        db_default=Value("[]", models.JSONField()),
        blank=True,
        help_text="Secrets that still sign beside it: [{sealed, until}].",
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(blank=True, default="")
    disabled_by = models.TextField(
        choices=DisabledBy.choices, blank=True, default="", db_default="", help_text="Empty while it is enabled."
    )
    deleted_at = models.DateTimeField(null=True, blank=True)
    idempotent = models.BooleanField(default=True, help_text="Drops duplicates by id, for the window.")
    window_hours = models.IntegerField(default=72)
    query_url = models.TextField(null=True, blank=True)
    retry_schedule = ArrayField(models.IntegerField(), default=default_schedule, help_text="Seconds between attempts.")
    retry_jitter = models.FloatField(default=0.2)
    retry_max_age_hours = models.IntegerField(default=72)
    conflict_accepts = models.BooleanField(
        default=False, db_default=False, help_text="409 says that it had it already."
    )
    ordered = models.BooleanField(default=False, db_default=False, help_text="One at a time, as they were accepted.")
    order_patience = models.IntegerField(
        null=True, blank=True, help_text="Attempts after which the first in line is moved aside; empty: never."
    )
    in_flight = models.IntegerField(default=16)
    rate_per_second = models.FloatField(null=True, blank=True, help_text="Empty: no limit.")
    rate_burst = models.IntegerField(null=True, blank=True, help_text="Empty: what one second allows.")
    connect_timeout_ms = models.IntegerField(null=True, blank=True, help_text="Empty: 5 seconds.")
    timeout_ms = models.IntegerField(null=True, blank=True, help_text="Empty: RELAY_HTTP_TIMEOUT_MS.")
    blocked_until = models.DateTimeField(null=True, blank=True, help_text="The receiver asked for a pause until then.")
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta:
        db_table = "deliveries_endpoint"
        ordering = ("-endpoint_id",)
        indexes = (
            models.Index(fields=("tenant", "endpoint_id"), name="endpoint_by_tenant"),
            models.Index(fields=("tenant",), name="endpoint_hears", condition=~Q(receives="events")),
        )
        constraints = (
            models.CheckConstraint(condition=Q(in_flight__gt=0), name="endpoint_in_flight"),
            models.CheckConstraint(condition=Q(timeout_ms__isnull=True) | Q(timeout_ms__gt=0), name="endpoint_timeout"),
            models.CheckConstraint(condition=Q(window_hours__gte=0), name="endpoint_window"),
            models.CheckConstraint(condition=Q(retry_jitter__gte=0, retry_jitter__lte=1), name="endpoint_jitter"),
            models.CheckConstraint(condition=Q(retry_max_age_hours__gt=0), name="endpoint_max_age"),
            models.CheckConstraint(
                condition=Q(connect_timeout_ms__isnull=True) | Q(connect_timeout_ms__gt=0),
                name="endpoint_connect_timeout",
            ),
            models.CheckConstraint(
                condition=Q(rate_per_second__isnull=True) | Q(rate_per_second__gt=0), name="endpoint_rate"
            ),
            models.CheckConstraint(condition=Q(rate_burst__isnull=True) | Q(rate_burst__gt=0), name="endpoint_burst"),
            models.CheckConstraint(
                condition=Q(order_patience__isnull=True) | Q(order_patience__gt=0), name="endpoint_order_patience"
            ),
            models.CheckConstraint(condition=Q(envelope__in=Envelope.values), name="endpoint_envelope"),
            models.CheckConstraint(condition=Q(receives__in=Receives.values), name="endpoint_receives"),
        )

    def __str__(self) -> str:
        return f"{ids.render(ids.ENDPOINT, self.endpoint_id)} {self.url}"


class EndpointState(LedgerModel):
    """How an endpoint has been doing: what its rate limit allows, its breaker, and since when everything fails.

    Not a record: it may be lost without harm, and begins anew. Written by the statements of `endpoint_state.sql` alone;
    a row is made when there is something to say. The breaker is closed while `opens` is 0, open until `open_until`, and
    half open after it: one delivery at a time tries whether the receiver is well again.
    """

    endpoint = models.OneToOneField(
        Endpoint, models.DO_NOTHING, primary_key=True, related_name="state", db_constraint=False
    )
    allowance = models.FloatField(db_default=0.0, help_text="Sends that the rate limit allows, as of refilled_at.")
    refilled_at = models.DateTimeField(db_default=Clock())
    opens = models.IntegerField(db_default=0, help_text="How often in a row the breaker opened.")
    open_until = models.DateTimeField(null=True, blank=True)
    failures_in_a_row = models.IntegerField(db_default=0)
    window_since = models.DateTimeField(db_default=Clock())
    window_failed = models.IntegerField(db_default=0)
    window_total = models.IntegerField(db_default=0)
    failing_since = models.DateTimeField(null=True, blank=True, help_text="Nothing was accepted since.")
    failing_count = models.IntegerField(db_default=0, help_text="Deliveries that failed since.")
    warned_at = models.DateTimeField(null=True, blank=True, help_text="When it was said that it will be disabled.")
    accepted_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(db_default="", blank=True)
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_endpoint_state"
        indexes = (
            models.Index(fields=("failing_since",), name="state_failing", condition=Q(failing_since__isnull=False)),
        )

    def __str__(self) -> str:
        return str(self.endpoint_id)
