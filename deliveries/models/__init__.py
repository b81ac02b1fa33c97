"""The webhook side of the ledger, as tables. What is configuration is written through the ORM; what is a record, by the
named statements of `deliveries/sql/`, in the transaction of the ledger rows that it belongs to.

An event is never changed, but for its content being removed on request. An attempt that the reconciler wrote for a lost
worker may learn, once, what that worker saw; no other changes.
"""

from __future__ import annotations

from deliveries.models.endpoints import (
    DEFAULT_SCHEDULE,
    DisabledBy,
    Endpoint,
    EndpointState,
    Envelope,
    Receives,
    default_schedule,
)
from deliveries.models.events import Event, EventType
from deliveries.models.evidence import Acknowledgement, Attempt, Said, Source, Verdict
from deliveries.models.jobs import Job, JobKind, JobStatus
from deliveries.models.tenants import DEFAULT_TENANT, ApiKey, Scope, Tenant, UnknownTypes

__all__ = [
    "DEFAULT_SCHEDULE",
    "DEFAULT_TENANT",
    "Acknowledgement",
    "ApiKey",
    "Attempt",
    "DisabledBy",
    "Endpoint",
    "EndpointState",
    "Envelope",
    "Event",
    "EventType",
    "Job",
    "JobKind",
    "JobStatus",
    "Receives",
    "Said",
    "Scope",
    "Source",
    "Tenant",
    "UnknownTypes",
    "Verdict",
    "default_schedule",
]
