"""The ledger's tables: columns, CHECKs and indexes. No verbs: every write is a named statement in `ledger/sql/`.

Times are `clock_timestamp()` of the primary. Subject columns (tenant, event, endpoint) are opaque to the ledger and
carry no foreign key. See the essay in `ledger/__init__.py` for who may write what.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.db.models import Func, Q

from ledger.states import Decision, OperationStatus, RunReason, RunStatus


class Clock(Func):
    """`clock_timestamp()`: the primary's clock at this very moment, not the transaction's start."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class TimeOrderedId(Func):
    """A version 7 UUID (RFC 9562) made by the database, so that new keys land side by side in their index."""

    function = "ledger_uuid7"
    output_field = models.UUIDField()


class LedgerWriteRefused(TypeError):
    """Somebody tried to write a ledger row through the ORM, where no fencing condition would be checked."""


def _refuse(model: type[models.Model], verb: str) -> NoReturn:
    raise LedgerWriteRefused(
        f"{verb} on {model.__name__} is refused: the ledger is written only by the named statements in ledger/sql/, "
        "which carry the fencing conditions. Use ledger.managers."
    )


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """Reads as usual; every write raises `LedgerWriteRefused`."""

    def create(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "create")

    def get_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "get_or_create")

    def update_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "update_or_create")

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "bulk_create")

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "bulk_update")

    def update(self, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "update")

    def delete(self) -> NoReturn:
        _refuse(self.model, "delete")

    def _raw_delete(self, using: str | None) -> NoReturn:
        _refuse(self.model, "delete")

    def _insert(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "insert")

    def _update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self.model, "update")


class LedgerModel(models.Model):
    """A row of the ledger: readable through the ORM, writable only by named statements."""

    objects = models.Manager.from_queryset(ReadOnlyQuerySet)()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self), "save")

    def save_base(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self), "save")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self), "delete")


def one_of(field: str, choices: type[models.TextChoices]) -> Q:
    """The condition that a status column holds a member of its table in `states.py`."""
    return Q(**{f"{field}__in": choices.values})


class Task(LedgerModel):
    """The logical unit that a user sees, stable across retries. Users call it a delivery."""

    task_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    tenant_id = models.TextField()
    event_id = models.UUIDField(help_text="What it is about: opaque to the ledger.")
    endpoint_id = models.UUIDField(help_text="Where its effect goes: opaque to the ledger.")
    active_run_id = models.UUIDField()
    in_line = models.BooleanField(
        db_default=False, help_text="Its endpoint gets it in order: after every one before it, and before the next."
    )
    closed_at = models.DateTimeField(null=True, blank=True, help_text="Since then no run of it is opened any more.")
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_task"
        ordering = ("-task_id",)
        indexes = (
            models.Index(fields=("event_id",), name="task_by_event"),
            models.Index(fields=("endpoint_id", "task_id"), name="task_by_endpoint"),
            models.Index(fields=("tenant_id", "task_id"), name="task_by_tenant"),
        )

    def __str__(self) -> str:
        return str(self.task_id)


class Run(LedgerModel):
    """One execution of a task; never reused. A replay makes a new one."""

    run_id = models.UUIDField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    task = models.ForeignKey(Task, models.DO_NOTHING, related_name="runs", db_index=False)
    status = models.TextField(choices=RunStatus.choices)
    revision = models.BigIntegerField(db_default=0)
    checkpoint = models.JSONField(db_default=models.Value({}, models.JSONField()))
    reason = models.TextField(choices=RunReason.choices, help_text="Why it exists.")
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_run"
        ordering = ("-run_id",)
        indexes = (models.Index(fields=("task", "-created_at"), name="run_by_task"),)
        constraints = (
            models.CheckConstraint(condition=one_of("status", RunStatus), name="run_status"),
            models.CheckConstraint(condition=one_of("reason", RunReason), name="run_reason"),
            models.CheckConstraint(condition=Q(revision__gte=0), name="run_revision"),
        )

    def __str__(self) -> str:
        return str(self.run_id)


class Lease(LedgerModel):
    """The right to advance a run until `expires_at`, held by an owner under an epoch. One row per run, for ever."""

    run = models.OneToOneField(Run, models.DO_NOTHING, primary_key=True, related_name="lease")
    owner = models.TextField(null=True, blank=True)
    epoch = models.BigIntegerField(db_default=0, help_text="The term of ownership: never lowered, never zeroed.")
    acquired_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(db_default=models.Value("epoch", models.TextField()))
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_lease"
        constraints = (
            models.CheckConstraint(condition=Q(epoch__gte=0), name="lease_epoch"),
            models.CheckConstraint(condition=Q(owner__isnull=True) | ~Q(owner=""), name="lease_owner"),
        )

    def __str__(self) -> str:
        return f"{self.run_id} epoch {self.epoch}"


class Operation(LedgerModel):
    """One side-effect intent, `tenant/run/step/effect_version`; its id never changes for the same intent."""

    operation_key = models.BigAutoField(primary_key=True, help_text="Internal: compact and time-ordered.")
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="operations", db_index=False)
    step_id = models.TextField()
    effect_version = models.IntegerField(db_default=1)
    tool = models.TextField()
    request_digest = models.BinaryField(help_text="SHA-256 of the intent.")
    request_ref = models.UUIDField(help_text="Where the exact bytes are kept: opaque to the ledger.")
    status = models.TextField(choices=OperationStatus.choices)
    due_at = models.DateTimeField(null=True, blank=True, help_text="When it may be claimed; empty: not by itself.")
    dispatch_owner = models.TextField(null=True, blank=True)
    dispatch_epoch = models.BigIntegerField(null=True, blank=True, help_text="The term under which it was claimed.")
    dispatch_until = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(db_default=0, help_text="How many sends were begun.")
    losses = models.IntegerField(db_default=0, help_text="How many claims in a row ran out.")
    first_dispatched_at = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True, help_text="When the last claim was made.")
    ambiguous = models.BooleanField(db_default=False, help_text="An attempt may have been taken.")
    retry_until = models.DateTimeField(null=True, blank=True, help_text="No same-key retry may start after this.")
    remote_id = models.TextField(null=True, blank=True)
    result = models.JSONField(null=True, blank=True)
    revision = models.BigIntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Clock())
    updated_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_operation"
        ordering = ("-operation_key",)
        permissions = (("resolve_operation", "Can resolve unknown operations"),)
        constraints = (
            models.UniqueConstraint(fields=("run", "step_id", "effect_version"), name="operation_identity"),
            models.CheckConstraint(condition=one_of("status", OperationStatus), name="operation_status"),
            models.CheckConstraint(condition=Q(revision__gte=0), name="operation_revision"),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="operation_attempts"),
            models.CheckConstraint(condition=Q(losses__gte=0), name="operation_losses"),
            models.CheckConstraint(condition=Q(effect_version__gt=0), name="operation_effect_version"),
            models.CheckConstraint(
                condition=~Q(status="dispatching")
                | Q(dispatch_owner__isnull=False, dispatch_until__isnull=False, dispatched_at__isnull=False),
                name="operation_claim_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(dispatch_owner__isnull=True, dispatch_epoch__isnull=True, dispatch_until__isnull=True)
                | Q(
                    dispatch_owner__isnull=False,
                    dispatch_epoch__isnull=False,
                    dispatch_until__isnull=False,
                    status__in=("dispatching", "unknown"),
                ),
                name="operation_claim_has_a_term_and_an_end",
            ),
            models.CheckConstraint(
                condition=~Q(status="prepared") | Q(due_at__isnull=False, ambiguous=False),
                name="operation_prepared_is_due_and_unsent",
            ),
            models.CheckConstraint(
                condition=~Q(status="unknown") | Q(ambiguous=True), name="operation_unknown_is_ambiguous"
            ),
        )

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step_id}/{self.effect_version}"


class Dispatch(LedgerModel):
    """The queue, a pointer and never the truth: one row per operation that is not settled, gone when it is.

    `due_at` is empty while only evidence or a person can move the operation on.
    """

    operation = models.OneToOneField(
        Operation, models.DO_NOTHING, primary_key=True, db_column="operation_key", related_name="dispatch"
    )
    run_id = models.UUIDField()
    tenant_id = models.TextField()
    endpoint_id = models.UUIDField()
    due_at = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True, help_text="When the claim in flight runs out.")
    unknown_since = models.DateTimeField(null=True, blank=True)
    in_line = models.BooleanField(db_default=False, help_text="The task's: only the first of its endpoint is sent.")

    class Meta(LedgerModel.Meta):
        db_table = "ledger_dispatch"
        indexes = (
            models.Index(fields=("endpoint_id", "in_line", "due_at", "operation"), name="dispatch_due"),
            models.Index(fields=("endpoint_id", "operation"), name="dispatch_line", condition=Q(in_line=True)),
            models.Index(fields=("until",), name="dispatch_held", condition=Q(until__isnull=False)),
            models.Index(fields=("operation",), name="dispatch_unknown", condition=Q(unknown_since__isnull=False)),
            models.Index(
                fields=("operation",),
                name="dispatch_needs_a_person",
                condition=Q(unknown_since__isnull=False, due_at__isnull=True, until__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return str(self.operation_id)


class Takeover(LedgerModel):
    """Append-only: an owner let its lease expire, and another took it."""

    takeover_id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="takeovers", db_index=False)
    epoch = models.BigIntegerField(help_text="The new term.")
    owner = models.TextField()
    previous_owner = models.TextField()
    previous_expired_at = models.DateTimeField()
    taken_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_takeover"
        ordering = ("-takeover_id",)
        constraints = (models.UniqueConstraint(fields=("run", "epoch"), name="takeover_of_term"),)

    def __str__(self) -> str:
        return f"{self.run_id} epoch {self.epoch}"


class FencedWrite(LedgerModel):
    """Append-only: a write that was refused because its owner, epoch or revision is no longer current."""

    fenced_write_id = models.BigAutoField(primary_key=True)
    statement = models.TextField()
    reason = models.TextField()
    run_id = models.UUIDField(null=True, blank=True)
    operation_key = models.BigIntegerField(null=True, blank=True)
    owner = models.TextField(help_text="Who tried.")
    epoch = models.BigIntegerField(null=True, blank=True)
    revision = models.BigIntegerField(null=True, blank=True)
    seen_owner = models.TextField(null=True, blank=True, help_text="Who holds it.")
    seen_epoch = models.BigIntegerField(null=True, blank=True)
    seen_revision = models.BigIntegerField(null=True, blank=True)
    seen_status = models.TextField(null=True, blank=True)
    seen_expires_at = models.DateTimeField(null=True, blank=True)
    evidence = models.JSONField(null=True, blank=True, help_text="What the refused write had learned.")
    refused_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_fenced_write"
        ordering = ("-fenced_write_id",)
        indexes = (
            models.Index(fields=("run_id",), name="fenced_write_by_run"),
            models.Index(fields=("operation_key",), name="fenced_write_by_operation"),
        )

    def __str__(self) -> str:
        return f"{self.statement}: {self.reason}"


class Resolution(LedgerModel):
    """Append-only: a person settled an unknown operation, or somebody moved one aside out of its line, and why."""

    resolution_id = models.BigAutoField(primary_key=True)
    operation = models.ForeignKey(Operation, models.DO_NOTHING, db_column="operation_key", related_name="resolutions")
    actor = models.TextField(help_text="Who decided.")
    decision = models.TextField(choices=Decision.choices)
    reason = models.TextField()
    revision_seen = models.BigIntegerField()
    decided_at = models.DateTimeField(db_default=Clock())

    class Meta(LedgerModel.Meta):
        db_table = "ledger_resolution"
        ordering = ("-resolution_id",)
        constraints = (
            models.CheckConstraint(condition=one_of("decision", Decision), name="resolution_decision"),
            models.CheckConstraint(condition=~Q(reason=""), name="resolution_reason"),
        )

    def __str__(self) -> str:
        return f"{self.decision} by {self.actor}"
