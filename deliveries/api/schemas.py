"""What the API shows. Times are RFC 3339 in UTC; a run's id is a UUID; other ids name themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import TextChoices
from pydantic import BaseModel, Field

from deliveries.models import Said, Source, Verdict
from ledger.states import Decision, OperationStatus, RunReason, RunStatus

RUN = "01990f3a-7d52-7c1e-9a44-5b1f0c6d2e90"
OPERATION = f"default/{RUN}/deliver/1"
EVENT, ENDPOINT, DELIVERY, JOB, KEY = (prefix + UUID(RUN).hex for prefix in ("evt_", "ep_", "dlv_", "job_", "key_"))
CURSOR = "ZXZ0OjAxOTkwZjNhN2Q1Mg"


def _one_of(choices: type[TextChoices]) -> dict[str, Any]:
    """The words that a text may be, for the documentation."""
    return {"enum": list(choices.values)}


DeliveryStatus = Literal["pending", "retrying", "sending", "unknown", "delivered", "failed", "cancelled"]


class Page(BaseModel):
    """What every page has beside its items."""

    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null: no more.", examples=[CURSOR]
    )


class Accepted(BaseModel):
    """An event that will not be lost any more."""

    id: str = Field(description="The event; receivers see it as `webhook-id`.", examples=[EVENT])
    deliveries: int = Field(description="How many endpoints want it.", examples=[1])


class EventItem(BaseModel):
    """An event without its payload."""

    id: str = Field(examples=[EVENT])
    type: str = Field(examples=["invoice.paid"])
    source: str | None
    metadata: dict[str, str] | None
    deliver_at: datetime | None = Field(description="Not before this time.")
    headers: dict[str, str] | None = Field(description="Sent with it, where the endpoint has none of the name.")
    idempotency_key: str | None
    deliveries: int = Field(description="How many endpoints wanted it when it was accepted.", examples=[1])
    created_at: datetime
    expunged_at: datetime | None = Field(description="When its content was removed on request.")


class Event(EventItem):
    """An event with its payload, byte for byte as it was submitted."""

    data: Any = Field(examples=[{"invoice": "in_1042", "total": 1290}])


class EventPage(Page):
    items: list[EventItem]


class Attempt(BaseModel):
    """One HTTP request that was made: evidence."""

    number: int
    operation_id: str = Field(examples=[OPERATION])
    endpoint_id: str = Field(examples=[ENDPOINT])
    delivery_id: str = Field(examples=[DELIVERY])
    epoch: int = Field(description="The term of the lease it was made under.")
    owner: str
    url: str
    started_at: datetime
    ended_at: datetime | None = Field(description="Null: its worker was lost before it could say.")
    recorded_at: datetime = Field(description="When it was first written down.")
    verdict: str = Field(description="What the wire proved.", json_schema_extra=_one_of(Verdict))
    classification: str = Field(examples=["accepted"])
    http_status: int | None
    response_headers: Any
    response_body: str | None = Field(description="Its beginning, as text.")
    error: str
    evidence: Any
    late: bool = Field(description="Reported after its worker had lost the lease.")


class AttemptPage(Page):
    items: list[Attempt]


class Resolution(BaseModel):
    """What a person decided about an operation; or who moved it aside out of its line."""

    actor: str
    decision: str = Field(json_schema_extra=_one_of(Decision))
    reason: str
    revision_seen: int
    decided_at: datetime


class Acknowledgement(BaseModel):
    """What the receiver said about an operation outside of an attempt's answer."""

    operation_id: str = Field(examples=[OPERATION])
    source: str = Field(description="It told us, or we asked.", json_schema_extra=_one_of(Source))
    said: str = Field(json_schema_extra=_one_of(Said))
    remote_id: str | None
    detail: str
    actor: str = Field(description="Who wrote it down for the receiver.")
    http_status: int | None = Field(description="Of the answer to our question.")
    received_at: datetime


class OperationItem(BaseModel):
    """One side-effect intent. Its id never changes, through every retry, takeover and restart."""

    id: str = Field(examples=[OPERATION])
    status: str = Field(json_schema_extra=_one_of(OperationStatus))
    revision: int = Field(description="+1 at each write: name it when you resolve.")
    run_id: UUID
    delivery_id: str = Field(examples=[DELIVERY])
    event_id: str = Field(examples=[EVENT])
    event_type: str = Field(examples=["invoice.paid"])
    endpoint_id: str = Field(examples=[ENDPOINT])
    step_id: str = Field(examples=["deliver"])
    effect_version: int
    tool: str = Field(examples=["webhook"])
    attempts: int = Field(description="How many sends were begun.")
    losses: int = Field(description="How many sends in a row each lost their worker.")
    quarantined: bool = Field(description="They were so many that it is not sent again by itself.")
    holds_line: bool = Field(description="The line of its endpoint waits for it: it is the first there.")
    due_at: datetime | None = Field(description="When it may be sent; null: not by itself.")
    dispatch_owner: str | None
    dispatch_until: datetime | None
    ambiguous: bool = Field(description="Some attempt may have been taken.")
    unknown_since: datetime | None
    retry_until: datetime | None
    first_dispatched_at: datetime | None
    dispatched_at: datetime | None
    remote_id: str | None
    result: Any
    created_at: datetime
    updated_at: datetime


class Operation(OperationItem):
    """An operation with all that is known about it. `attempts` is their number; `attempt_records` are they."""

    attempt_records: list[Attempt]
    acknowledgements: list[Acknowledgement]
    resolutions: list[Resolution]


class OperationPage(Page):
    items: list[OperationItem]


class DeliveryItem(BaseModel):
    """One event going to one endpoint."""

    id: str = Field(examples=[DELIVERY])
    event_id: str = Field(examples=[EVENT])
    event_type: str = Field(examples=["invoice.paid"])
    endpoint_id: str = Field(examples=[ENDPOINT])
    status: DeliveryStatus
    run_id: UUID = Field(description="The active run.")
    operation_id: str | None = Field(examples=[OPERATION])
    attempts: int
    quarantined: bool = Field(description="Its last sends each lost their worker: it is not sent again by itself.")
    in_line: bool = Field(description="It stands in its endpoint's line: it is sent when it is the first there.")
    holds_line: bool = Field(description="It is the first, and the others wait for it.")
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime = Field(description="The last change of the delivery, its active run or its operation.")


class DeliveryPage(Page):
    items: list[DeliveryItem]


class Lease(BaseModel):
    """The right to advance a run."""

    owner: str | None = Field(description="Null: free.")
    epoch: int
    acquired_at: datetime | None
    expires_at: datetime | None
    overdue: bool = Field(description="Held, but not renewed in time: the next worker takes it over.")


class Run(BaseModel):
    """One execution of a delivery."""

    run_id: UUID
    active: bool
    status: str = Field(json_schema_extra=_one_of(RunStatus))
    revision: int
    reason: str = Field(description="Why it exists.", json_schema_extra=_one_of(RunReason))
    checkpoint: Any
    lease: Lease | None
    created_at: datetime
    updated_at: datetime


class Takeover(BaseModel):
    """An owner let its lease expire, and another took it."""

    run_id: UUID
    epoch: int
    owner: str
    previous_owner: str
    previous_expired_at: datetime
    taken_at: datetime


class FencedWrite(BaseModel):
    """A write that was refused because its owner, epoch or revision was no longer current."""

    statement: str
    reason: str
    run_id: UUID | None
    operation_id: str | None
    owner: str
    epoch: int | None
    revision: int | None
    seen_owner: str | None
    seen_epoch: int | None
    seen_revision: int | None
    seen_status: str | None
    seen_expires_at: datetime | None
    evidence: Any
    refused_at: datetime


class Delivery(DeliveryItem):
    """A delivery's whole life. Of each list at most the newest 1,000 rows."""

    runs: list[Run]
    operations: list[Operation]
    attempt_records: list[Attempt]
    acknowledgements: list[Acknowledgement]
    takeovers: list[Takeover]
    fenced_writes: list[FencedWrite]
