"""The webhook side of the ledger: tenants, API keys, endpoints, events and attempts.

Endpoints, tenants and keys are plain configuration and are written through the ORM. Events and attempts are records:
they are inserted by named statements, in the transaction of the ledger rows that they belong to. An event is never
changed. An attempt that the reconciler wrote for a lost worker may learn, once, what that worker saw; no other changes.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, Value

from deliveries import ids
from ledger.models import Clock, LedgerModel, TimeOrderedId

DEFAULT_TENANT = "default"
DEFAULT_SCHEDULE = (5, 300, 1800, 7200, 18000, 36000, 36000)


def default_schedule() -> list[int]:
    """The retry schedule of an endpoint that names none, in seconds."""
    return list(DEFAULT_SCHEDULE)


class Tenant(models.Model):
    """A customer of the producer; owns endpoints and events."""

    tenant_id = models.TextField(primary_key=True)
    name = models.TextField()
    created_at = models.DateTimeField(db_default=Clock())

    class Meta:
        db_table = "deliveries_tenant"
        ordering = ("tenant_id",)
        constraints = (
            models.CheckConstraint(condition=Q(tenant_id__regex=r"^[a-z0-9][a-z0-9_-]{0,62}$"), name="tenant_id_form"),
        )

    def __str__(self) -> str:
        return self.tenant_id


class Scope(models.TextChoices):
    """What a key may do."""

    EVENTS_WRITE = "events:write", "Submit events"
    READ = "read", "Read"
    ENDPOINTS_WRITE = "endpoints:write", "Change endpoints"
    OPERATE = "operate", "Resolve unknown operations"


class ApiKey(models.Model):
    """A bearer key, kept as a hash. Without a tenant it is the operator's and may act for any tenant."""

    key_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, blank=True, related_name="keys")
    name = models.TextField()
    lookup = models.TextField(unique=True, help_text="The public part of the key, by which it is found.")
    secret_hash = models.BinaryField(help_text="SHA-256 of the whole key.")
    scopes = ArrayField(models.TextField(choices=Scope.choices))
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


class Envelope(models.TextChoices):
    """What a receiver gets as the body."""

    NONE = "none", "The data, byte for byte"
    STANDARD = "standard", "The data, its type and its time (Standard Webhooks)"


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
        indexes = (models.Index(fields=("tenant", "endpoint_id"), name="endpoint_by_tenant"),)
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


class Event(LedgerModel):
    """One accepted payload, kept as the exact bytes. Its id is the `webhook-id` header and stays the same for ever."""

    event_id = models.UUIDField(primary_key=True, editable=False)
    tenant = models.ForeignKey(Tenant, models.DO_NOTHING, related_name="events", db_index=False)
    type = models.TextField()
    payload = models.BinaryField(help_text="The exact bytes of `data` as submitted.")
    digest = models.BinaryField(help_text="SHA-256 over the canonical form of the intent.")
    source = models.TextField(null=True, blank=True)
    metadata = models.JSONField(null=True, blank=True)
    deliver_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.TextField(null=True, blank=True)
    deliveries = models.IntegerField(help_text="How many endpoints wanted it when it was accepted.")
    created_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_event"
        ordering = ("-event_id",)
        indexes = (models.Index(fields=("tenant", "event_id"), name="event_by_tenant"),)
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "idempotency_key"),
                condition=Q(idempotency_key__isnull=False),
                name="event_idempotency",
            ),
        )

    def __str__(self) -> str:
        return ids.render(ids.EVENT, self.event_id)


class Verdict(models.TextChoices):
    """What the wire proved about one attempt."""

    ANSWERED = "answered", "Answered"
    NOT_SENT = "not_sent", "Verified not delivered"
    UNKNOWN = "unknown", "Unknown"


class Attempt(LedgerModel):
    """One HTTP request made for an operation, numbered: evidence, not an identity."""

    attempt_id = models.BigAutoField(primary_key=True)
    operation_key = models.BigIntegerField()
    number = models.IntegerField()
    epoch = models.BigIntegerField()
    owner = models.TextField()
    url = models.TextField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, help_text="Empty: its worker was lost before it could say.")
    verdict = models.TextField(choices=Verdict.choices)
    classification = models.TextField(help_text="The row of `outcomes.py` that it fell under.")
    http_status = models.IntegerField(null=True, blank=True)
    response_headers = models.JSONField(null=True, blank=True)
    response_body = models.BinaryField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    evidence = models.JSONField(null=True, blank=True)
    late = models.BooleanField(db_default=False, help_text="It was reported after its worker had lost the lease.")
    recorded_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_attempt"
        ordering = ("operation_key", "number")
        constraints = (
            models.UniqueConstraint(fields=("operation_key", "number"), name="attempt_number"),
            models.CheckConstraint(condition=Q(number__gt=0), name="attempt_number_counts_from_one"),
            models.CheckConstraint(condition=Q(verdict__in=Verdict.values), name="attempt_verdict"),
        )

    def __str__(self) -> str:
        return f"attempt {self.number}"


class Said(models.TextChoices):
    """What a receiver says became of an operation."""

    PROCESSED = "processed", "Processed"
    REJECTED = "rejected", "Rejected: it will never be taken"
    NEVER_ARRIVED = "never_arrived", "Never arrived"
    UNKNOWN = "unknown", "It cannot say"


class Source(models.TextChoices):
    """How it came to say so."""

    ACKNOWLEDGEMENT = "acknowledgement", "It told us"
    QUERY = "query", "We asked"


class Acknowledgement(LedgerModel):
    """Append-only: what a receiver said about an operation outside of an attempt's answer."""

    acknowledgement_id = models.BigAutoField(primary_key=True)
    operation_key = models.BigIntegerField()
    run_id = models.UUIDField()
    source = models.TextField(choices=Source.choices)
    said = models.TextField(choices=Said.choices)
    message_id = models.TextField(null=True, blank=True, help_text="The `webhook-id` under which the receiver sent it.")
    covers = models.IntegerField(
        help_text="The last attempt that it can speak of; 0: nothing can have been taken when it was said."
    )
    remote_id = models.TextField(null=True, blank=True)
    detail = models.TextField(blank=True, default="")
    actor = models.TextField(help_text="Who wrote it down for the receiver.")
    http_status = models.IntegerField(null=True, blank=True, help_text="Of the answer to our question.")
    received_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_acknowledgement"
        ordering = ("-acknowledgement_id",)
        indexes = (models.Index(fields=("operation_key", "acknowledgement_id"), name="acknowledgement_by_operation"),)
        constraints = (
            models.UniqueConstraint(
                fields=("operation_key", "message_id"),
                condition=Q(message_id__isnull=False),
                name="acknowledgement_message",
            ),
            models.CheckConstraint(condition=Q(source__in=Source.values), name="acknowledgement_source"),
            models.CheckConstraint(condition=Q(said__in=Said.values), name="acknowledgement_said"),
            models.CheckConstraint(condition=Q(covers__gte=0), name="acknowledgement_covers"),
        )

    def __str__(self) -> str:
        return f"{self.said} ({self.source})"
