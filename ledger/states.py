"""Every status of the ledger and every legal move between them: the one table.

The CHECK constraints, the documentation and the tests are derived from here. Who makes a move is part of the table,
because a move that is legal for a person is not legal for a worker whose lease ran out.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models


class RunStatus(models.TextChoices):
    """Where one execution of a task stands."""

    PENDING = "pending", "Pending"
    """Created, never claimed. The first claim moves it to running; a cancel ends it."""
    RUNNING = "running", "Running"
    """A worker has held its lease at least once. Whoever holds the lease ends it, following its operation."""
    SUCCEEDED = "succeeded", "Succeeded"
    """Terminal: its operation was accepted."""
    FAILED = "failed", "Failed"
    """Terminal: its operation was proven not taken and has no tries left, or a person said so."""
    CANCELLED = "cancelled", "Cancelled"
    """Terminal: the control plane ended it. What was in flight keeps its own truth on the operation."""


class OperationStatus(models.TextChoices):
    """What is known about one side effect."""

    PREPARED = "prepared", "Prepared"
    """Every send of it, if any, was proven not taken. A claim moves it on when it is due; a cancel ends it; and the
    reconciler does, when it turns out that a send was taken after all."""
    DISPATCHING = "dispatching", "Dispatching"
    """Claimed: it may be on the wire. The claim's owner settles it; the reconciler, once the claim expired."""
    UNKNOWN = "unknown", "Unknown"
    """Sent, and nobody can say whether it was taken. Evidence or a person moves it on; time never does."""
    SUCCEEDED = "succeeded", "Succeeded"
    """Terminal: the receiver took it."""
    FAILED_FINAL = "failed_final", "Failed"
    """Terminal: proven that the receiver did not take it, and no tries are left; or a person said so."""
    CANCELLED = "cancelled", "Cancelled"
    """Terminal: withdrawn while nothing of it can have been taken, with its run or for its next version."""


class Mover(models.TextChoices):
    """Who may make a move."""

    OWNER = "owner", "the worker that holds the lease"
    RECONCILER = "reconciler", "the reconciler"
    PERSON = "person", "a person"
    CONTROL = "control", "the control plane"


@dataclass(frozen=True, slots=True)
class Move:
    """One legal move: `statement` is the named statement that makes it."""

    source: str
    target: str
    by: Mover
    statement: str


_R, _O, _M = RunStatus, OperationStatus, Mover

RUN_MOVES: tuple[Move, ...] = (
    Move(_R.PENDING, _R.RUNNING, _M.OWNER, "operation.claim"),
    Move(_R.PENDING, _R.RUNNING, _M.OWNER, "run.start"),
    Move(_R.RUNNING, _R.RUNNING, _M.OWNER, "run.save_checkpoint"),
    Move(_R.RUNNING, _R.RUNNING, _M.OWNER, "operation.plan"),
    Move(_R.RUNNING, _R.SUCCEEDED, _M.OWNER, "operation.settle"),
    Move(_R.RUNNING, _R.SUCCEEDED, _M.OWNER, "run.succeed"),
    Move(_R.RUNNING, _R.SUCCEEDED, _M.RECONCILER, "run.finish_left_behind"),
    Move(_R.RUNNING, _R.SUCCEEDED, _M.RECONCILER, "unknown.converge"),
    Move(_R.RUNNING, _R.SUCCEEDED, _M.PERSON, "unknown.resolve"),
    Move(_R.RUNNING, _R.FAILED, _M.OWNER, "operation.settle"),
    Move(_R.RUNNING, _R.FAILED, _M.OWNER, "run.fail"),
    Move(_R.RUNNING, _R.FAILED, _M.RECONCILER, "run.finish_left_behind"),
    Move(_R.RUNNING, _R.FAILED, _M.RECONCILER, "unknown.converge"),
    Move(_R.RUNNING, _R.FAILED, _M.PERSON, "unknown.resolve"),
    Move(_R.PENDING, _R.CANCELLED, _M.CONTROL, "run.cancel"),
    Move(_R.RUNNING, _R.CANCELLED, _M.CONTROL, "run.cancel"),
)

OPERATION_MOVES: tuple[Move, ...] = (
    Move(_O.PREPARED, _O.DISPATCHING, _M.OWNER, "operation.claim"),
    Move(_O.DISPATCHING, _O.SUCCEEDED, _M.OWNER, "operation.settle"),
    Move(_O.DISPATCHING, _O.PREPARED, _M.OWNER, "operation.settle"),
    Move(_O.DISPATCHING, _O.FAILED_FINAL, _M.OWNER, "operation.settle"),
    Move(_O.DISPATCHING, _O.UNKNOWN, _M.OWNER, "operation.settle"),
    Move(_O.DISPATCHING, _O.UNKNOWN, _M.RECONCILER, "unknown.expire_claims"),
    Move(_O.UNKNOWN, _O.UNKNOWN, _M.OWNER, "operation.claim"),
    Move(_O.UNKNOWN, _O.UNKNOWN, _M.OWNER, "operation.settle"),
    Move(_O.UNKNOWN, _O.UNKNOWN, _M.RECONCILER, "unknown.expire_claims"),
    Move(_O.UNKNOWN, _O.UNKNOWN, _M.RECONCILER, "unknown.schedule_retry"),
    Move(_O.UNKNOWN, _O.UNKNOWN, _M.PERSON, "unknown.resolve"),
    Move(_O.UNKNOWN, _O.SUCCEEDED, _M.OWNER, "operation.settle"),
    Move(_O.UNKNOWN, _O.SUCCEEDED, _M.RECONCILER, "unknown.converge"),
    Move(_O.UNKNOWN, _O.SUCCEEDED, _M.PERSON, "unknown.resolve"),
    Move(_O.UNKNOWN, _O.PREPARED, _M.RECONCILER, "unknown.converge"),
    Move(_O.PREPARED, _O.SUCCEEDED, _M.RECONCILER, "unknown.converge"),
    Move(_O.UNKNOWN, _O.FAILED_FINAL, _M.RECONCILER, "unknown.converge"),
    Move(_O.UNKNOWN, _O.FAILED_FINAL, _M.PERSON, "unknown.resolve"),
    Move(_O.PREPARED, _O.CANCELLED, _M.OWNER, "operation.plan"),
    Move(_O.PREPARED, _O.CANCELLED, _M.CONTROL, "run.cancel"),
)

RUN_TERMINAL = frozenset({_R.SUCCEEDED, _R.FAILED, _R.CANCELLED})
OPERATION_TERMINAL = frozenset({_O.SUCCEEDED, _O.FAILED_FINAL, _O.CANCELLED})
OPERATION_UNSETTLED = frozenset({_O.PREPARED, _O.DISPATCHING, _O.UNKNOWN})


class RunReason(models.TextChoices):
    """Why a run exists."""

    SUBMIT = "submit", "Submitted"
    REPLAY = "replay", "Replayed"
    RECOVER = "recover", "Recovered"


class Decision(models.TextChoices):
    """What may be decided about an operation, with a reason: by a person, and the last one by a stated policy too."""

    SUCCEEDED = "succeeded", "It was delivered"
    FAILED = "failed", "It was not delivered, and shall not be sent again"
    RETRY = "retry", "Send it again under the same id"
    MOVED_ASIDE = "moved_aside", "It leaves its line; where it stands is not changed"
