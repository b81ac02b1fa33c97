"""Long work that somebody asked for, as rows: it goes on after a crash where it stood."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models import Clock, LedgerModel


class JobKind(models.TextChoices):
    """What a job does."""

    RECOVER = "recover", "Replay deliveries"
    EXPUNGE = "expunge", "Remove the content of events"


class JobStatus(models.TextChoices):
    """Where a job stands."""

    PENDING = "pending", "Waits for its first step"
    RUNNING = "running", "Goes on"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Stopped by a fault"


class Job(LedgerModel):
    """A walk over many rows in short steps. Each step does its work and moves `position` in one transaction, under the
    row's lock and only at the revision that it read: no row is worked on twice, and none is left out.

    Written by the statements of `job.sql` alone.
    """

    job_id = models.UUIDField(primary_key=True, editable=False)
    tenant_id = models.TextField()
    kind = models.TextField(choices=JobKind.choices)
    dry_run = models.BooleanField(db_default=False, help_text="It counts and changes nothing.")
    parameters = models.JSONField(help_text="What it is about, as it was asked for.")
    status = models.TextField(choices=JobStatus.choices, db_default=JobStatus.PENDING)
    revision = models.BigIntegerField(db_default=0)
    position = models.UUIDField(null=True, blank=True, help_text="The last row it has looked at.")
    walked = models.BigIntegerField(db_default=0, help_text="How many rows it has looked at.")
    matched = models.BigIntegerField(db_default=0, help_text="How many of them it was asked to change.")
    changed = models.BigIntegerField(db_default=0, help_text="How many of those it has changed.")
    skipped = models.BigIntegerField(db_default=0, help_text="How many of those could not be changed.")
    per_second = models.IntegerField(null=True, blank=True, help_text="At most so many changes; empty: no limit.")
    step_at = models.DateTimeField(db_default=Clock(), help_text="When its next step may be made.")
    actor = models.TextField(help_text="Who asked for it.")
    reason = models.TextField(blank=True, db_default="")
    error = models.TextField(blank=True, db_default="", help_text="Why it stopped.")
    created_at = models.DateTimeField(db_default=Clock())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "deliveries_job"
        ordering = ("-job_id",)
        indexes = (
            models.Index(fields=("tenant_id", "job_id"), name="job_by_tenant"),
            models.Index(
                fields=("step_at",),
                name="job_unfinished",
                condition=Q(status__in=(JobStatus.PENDING, JobStatus.RUNNING)),
            ),
        )
        constraints = (
            models.CheckConstraint(condition=Q(kind__in=JobKind.values), name="job_kind"),
            models.CheckConstraint(condition=Q(status__in=JobStatus.values), name="job_status"),
            models.CheckConstraint(condition=Q(per_second__isnull=True) | Q(per_second__gt=0), name="job_per_second"),
            models.CheckConstraint(
                condition=Q(status__in=(JobStatus.PENDING, JobStatus.RUNNING), ended_at__isnull=True)
                | Q(status__in=(JobStatus.DONE, JobStatus.CANCELLED, JobStatus.FAILED), ended_at__isnull=False),
                name="job_ends_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.status}"
