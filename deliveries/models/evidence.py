"""What is on record about an operation: attempts, and what receivers said."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models import Clock, LedgerModel


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
