"""What Relay answers about endpoints, event types, keys, tenants and jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When it is tried again: seconds between attempts."""

    schedule: list[int]
    jitter: float
    max_age_hours: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How hard the receiver may be called."""

    in_flight: int
    timeout_ms: int | None = None
    connect_timeout_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class RateLimit:
    """How often the receiver may be called."""

    per_second: float
    burst: int | None = None


@dataclass(frozen=True, kw_only=True)
class Order:
    """Whether deliveries are sent one at a time, in order."""

    ordered: bool
    patience: int | None = None


@dataclass(frozen=True, kw_only=True)
class Capability:
    """What the receiver promises."""

    idempotent: bool
    window_hours: int
    query_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Auth:
    """How requests authenticate, without what is secret of it."""

    kind: str
    username: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scopes: list[str] | None = None
    audience: str | None = None
    auth_style: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Certificates, as PEM."""

    client_certificate: str | None = None
    ca_certificates: str | None = None


@dataclass(frozen=True, kw_only=True)
class Health:
    """How sending to it has been going."""

    breaker: str = "closed"
    open_until: datetime | None = None
    failing_since: datetime | None = None
    failing_count: int = 0
    disables_at: datetime | None = None
    accepted_at: datetime | None = None
    failed_at: datetime | None = None
    last_error: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The deliveries of an ordered endpoint that wait for their turn, and the first of them."""

    length: int
    more: bool
    delivery_id: str
    status: str
    attempts: int
    hold: str
    why: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Whether its URL must have answered a challenge, and when it did."""

    required: bool
    verified_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class EndpointItem:
    """An endpoint, without what is secret of it."""

    id: str
    url: str
    enabled: bool
    created_at: datetime
    updated_at: datetime
    description: str = ""
    types: list[str] = field(default_factory=list)
    filter: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    secret_headers: list[str] = field(default_factory=list)
    auth: Auth | None = None
    tls: Tls = field(default_factory=Tls)
    envelope: str = "none"
    receives: str = "events"
    disabled_reason: str = ""
    verification: Verification | None = None
    blocked_until: datetime | None = None
    order: Order | None = None
    retry: Retry | None = None
    limits: Limits | None = None
    rate_limit: RateLimit | None = None
    capability: Capability | None = None
    conflict_accepts: bool = False
    health: Health = field(default_factory=Health)


@dataclass(frozen=True, kw_only=True)
class Endpoint(EndpointItem):
    """One endpoint. `etag` names this version of it: give it back with a change, and another's is not overwritten.
    `secret` is there in the answer that made it, and never again; it is not in the repr."""

    public_key: str | None = None
    question_key: str | None = None
    line: Line | None = None
    warning: str | None = None
    secret: str | None = field(default=None, repr=False)
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A test event on its way. Read the delivery to see what came of it."""

    id: str
    delivery_id: str


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """The new secret: the only time that it is shown."""

    secret: str = field(repr=False)
    settled: bool
    public_key: str | None = None
    question_key: str | None = None
    former_until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class EventType:
    """What a type of event means, and the JSON Schema that its payloads keep. `every_tenant`: it is global."""

    name: str
    every_tenant: bool = False
    description: str = ""
    schema: Any = None
    deprecated: bool = False
    archived_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of the API; without a tenant, an operator's. `key` is its text, in the answer that made it and never again;
    it is not in the repr."""

    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    prefix: str = ""
    tenant: str | None = None
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A customer of the producer."""

    id: str
    name: str
    unknown_types: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """Long work that somebody asked for, and how far it is."""

    id: str
    kind: str
    status: str
    created_at: datetime
    dry_run: bool = False
    parameters: Any = None
    progress: float | None = None
    walked: int = 0
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    per_second: int | None = None
    actor: str = ""
    reason: str = ""
    error: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """It is done, cancelled or failed, and will not change any more."""
        return self.ended_at is not None or self.status in {"done", "cancelled", "failed"}


@dataclass(frozen=True, kw_only=True)
class Stats:
    """What is not settled, and how the endpoints are. `more`: there is more than was counted."""

    at: datetime
    more: bool
    unsettled: int
    due: int
    in_flight: int
    unknown: int
    oldest_due_at: datetime | None = None
    oldest_unknown_since: datetime | None = None
    needs_a_person: int = 0
    endpoints: int = 0
    enabled: int = 0
    failing: int = 0
    breakers_open: int = 0
