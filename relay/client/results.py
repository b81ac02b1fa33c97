"""What Relay answers about events, deliveries and operations. What a newer server adds is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from relay.client.errors import FieldError


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that will not be lost any more. `replayed`: it had been accepted before, under the same key or id."""

    id: str
    deliveries: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why one event of a batch was refused."""

    code: str
    detail: str
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one event of a batch, by its place in what was given. Without an `error` it is accepted."""

    index: int
    status: int
    id: str | None = None
    deliveries: int = 0
    replayed: bool = False
    error: BatchError | None = None


@dataclass(frozen=True, kw_only=True)
class EventItem:
    """An event without its payload."""

    id: str
    type: str
    deliveries: int
    created_at: datetime
    source: str | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    deliver_at: datetime | None = None
    idempotency_key: str | None = None
    expunged_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Event(EventItem):
    """An event. `data` is what its JSON says, `payload` its exact bytes."""

    data: Any
    payload: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One HTTP request that was made."""

    number: int
    operation_id: str
    endpoint_id: str
    delivery_id: str
    epoch: int
    owner: str
    url: str
    started_at: datetime
    ended_at: datetime | None
    recorded_at: datetime
    verdict: str
    classification: str
    http_status: int | None = None
    response_headers: Any = None
    response_body: str | None = None
    error: str = ""
    evidence: Any = None
    late: bool = False


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What a person decided about an operation."""

    actor: str
    decision: str
    reason: str
    revision_seen: int
    decided_at: datetime


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """What the receiver said about an operation."""

    operation_id: str
    source: str
    said: str
    received_at: datetime
    remote_id: str | None = None
    detail: str = ""
    actor: str = ""
    http_status: int | None = None


@dataclass(frozen=True, kw_only=True)
class OperationItem:
    """One side effect that is intended. Name its `revision` when you resolve it."""

    id: str
    status: str
    revision: int
    run_id: UUID
    delivery_id: str
    event_id: str
    event_type: str
    endpoint_id: str
    attempts: int
    ambiguous: bool
    created_at: datetime
    updated_at: datetime
    step_id: str = ""
    effect_version: int = 1
    tool: str = ""
    losses: int = 0
    quarantined: bool = False
    holds_line: bool = False
    due_at: datetime | None = None
    dispatch_owner: str | None = None
    dispatch_until: datetime | None = None
    unknown_since: datetime | None = None
    retry_until: datetime | None = None
    first_dispatched_at: datetime | None = None
    dispatched_at: datetime | None = None
    remote_id: str | None = None
    result: Any = None


@dataclass(frozen=True, kw_only=True)
class Operation(OperationItem):
    """An operation with all that is known about it. `attempts` is their number; `attempt_records` are they."""

    attempt_records: list[Attempt] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    resolutions: list[Resolution] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the receiver said when it was asked, and the operation after it."""

    said: str
    detail: str
    operation: Operation


@dataclass(frozen=True, kw_only=True)
class DeliveryItem:
    """One event going to one endpoint."""

    id: str
    event_id: str
    event_type: str
    endpoint_id: str
    status: str
    run_id: UUID
    attempts: int
    created_at: datetime
    updated_at: datetime
    operation_id: str | None = None
    quarantined: bool = False
    in_line: bool = False
    holds_line: bool = False
    due_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came of one delivery of an event that was replayed. `reason`: why not, `goes_on`, `unsettled` (resolve
    it first) or `endpoint_deleted`."""

    delivery_id: str
    endpoint_id: str
    replayed: bool
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to advance a run."""

    owner: str | None
    epoch: int
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    overdue: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One execution of a delivery."""

    run_id: UUID
    active: bool
    status: str
    revision: int
    reason: str
    created_at: datetime
    updated_at: datetime
    checkpoint: Any = None
    lease: Lease | None = None


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """An owner let its lease expire, and another took it."""

    run_id: UUID
    epoch: int
    owner: str
    previous_owner: str
    previous_expired_at: datetime
    taken_at: datetime


@dataclass(frozen=True, kw_only=True)
class FencedWrite:
    """A write that was refused because its owner, epoch or revision was no longer current."""

    statement: str
    reason: str
    owner: str
    refused_at: datetime
    run_id: UUID | None = None
    operation_id: str | None = None
    epoch: int | None = None
    revision: int | None = None
    seen_owner: str | None = None
    seen_epoch: int | None = None
    seen_revision: int | None = None
    seen_status: str | None = None
    seen_expires_at: datetime | None = None
    evidence: Any = None


@dataclass(frozen=True, kw_only=True)
class Delivery(DeliveryItem):
    """A delivery's whole life. `detail` is what an action on it has to say."""

    runs: list[Run] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    attempt_records: list[Attempt] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    fenced_writes: list[FencedWrite] = field(default_factory=list)
    detail: str = ""
