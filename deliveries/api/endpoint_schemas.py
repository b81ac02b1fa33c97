"""What the API takes and shows of an endpoint."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deliveries.api.schemas import DELIVERY, ENDPOINT, Page

# The default of what a client need not send; it is never read, because only fields that were sent count.
UNSENT: Any = None

_OAUTH2: Any = {
    "kind": "oauth2",
    "token_url": "https://login.example.com/oauth/token",
    "client_id": "relay",
    "client_secret": "the client's secret",
    "scopes": ["webhooks:write"],
}
_EXAMPLES: Any = [
    {"url": "https://example.com/webhooks", "description": "Billing", "types": ["invoice.*"]},
    {
        "url": "https://example.com/webhooks",
        "types": ["invoice.*"],
        "filter": {"customer": {"plan": {"$in": ["pro", "enterprise"]}}},
        "headers": {"X-Team": "billing"},
        "secret_headers": {"X-Api-Key": "the key"},
        "auth": _OAUTH2,
        "order": {"ordered": True, "patience": 5},
        "rate_limit": {"per_second": 10, "burst": 20},
        "limits": {"in_flight": 8, "timeout_ms": 10_000, "connect_timeout_ms": 3_000},
        "retry": {"schedule": [5, 300, 1800], "jitter": 0.2, "max_age_hours": 72},
        "capability": {"idempotent": True, "window_hours": 72},
    },
]


class _Given(BaseModel):
    """What a client sends: no unknown fields, no silent conversions. Only the fields that were sent count."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RetryIn(_Given):
    """When to try again."""

    schedule: list[int] = Field(
        default=UNSENT,
        description="Seconds between attempts: at most 50, each from 1 to 604,800.",
        examples=[[5, 300, 1800]],
    )
    jitter: float = Field(
        default=UNSENT, description="0 to 1: the share of itself by which a delay may be longer or shorter."
    )
    max_age_hours: int = Field(default=UNSENT, description="No try after this many hours.")


class LimitsIn(_Given):
    """How hard the receiver may be called."""

    in_flight: int = Field(default=UNSENT, description="Requests at the same time: 1 to 1,000.")
    timeout_ms: int | None = Field(default=UNSENT, description="Of a whole request; null: the installation's default.")
    connect_timeout_ms: int | None = Field(
        default=UNSENT, description="Of name look-up, connecting and TLS: at most `timeout_ms`; null: 5 seconds."
    )


class RateLimitIn(_Given):
    """How often the receiver may be called. What is too much waits, and costs no attempt."""

    per_second: float | None = Field(default=UNSENT, description="0.001 to 10,000; null: no limit.", examples=[10])
    burst: int | None = Field(
        default=UNSENT, description="How many at once after a pause; null: as many as one second allows.", examples=[20]
    )


class OrderIn(_Given):
    """Whether deliveries are sent one at a time, in the order in which their events were accepted."""

    ordered: bool = Field(default=UNSENT)
    patience: int | None = Field(
        default=UNSENT,
        description="After so many attempts the first in line is moved aside for the others; null: never.",
    )


class CapabilityIn(_Given):
    """What the receiver promises."""

    idempotent: bool = Field(default=UNSENT, description="It drops duplicates by `webhook-id`.")
    window_hours: int = Field(default=UNSENT, description="For so long.")
    query_url: str | None = Field(default=UNSENT, description="Answers what became of an operation.")


class AuthIn(_Given):
    """How requests authenticate. It is replaced as a whole; a secret that is left out stays, if the kind does (and the
    token URL). The other fields belong to one kind each."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "basic", "username": "relay", "password": "the password"},
                {"kind": "bearer", "token": "the-token"},
                _OAUTH2,
            ]
        }
    )

    kind: Literal["basic", "bearer", "oauth2"] = Field(description="oauth2: client credentials (RFC 6749, 4.4).")
    username: str = Field(default=UNSENT, description="basic: without a colon.")
    password: str = Field(default=UNSENT, description="basic: secret.")
    token: str = Field(default=UNSENT, description="bearer: secret.")
    token_url: str = Field(default=UNSENT, description="oauth2: where tokens are had; the rules of `url` hold for it.")
    client_id: str = Field(default=UNSENT, description="oauth2")
    client_secret: str = Field(default=UNSENT, description="oauth2: secret.")
    scopes: list[str] = Field(default=UNSENT, description="oauth2")
    audience: str | None = Field(default=UNSENT, description="oauth2: as some token servers want it.")
    auth_style: Literal["header", "body"] = Field(
        default=UNSENT, description="oauth2: how the client names itself to the token server; `header` unless said."
    )


class TlsIn(_Given):
    """Certificates as PEM. Null removes one."""

    client_certificate: str | None = Field(
        default=UNSENT, description="What Relay shows to the receiver: its own first, then those up to its authority."
    )
    client_key: str | None = Field(default=UNSENT, description="Its private key, unencrypted; never shown again.")
    ca_certificates: str | None = Field(
        default=UNSENT,
        description="1 to 10 authorities that the receiver's must come from, instead of the public ones.",
    )


class EndpointChange(_Given):
    """The fields to change; the others stay. Parts of `retry`, `limits`, `rate_limit`, `order`, `tls` and `capability`
    that are left out stay, too, and so do other names in `secret_headers`; `types`, `headers`, `filter` and `auth` are
    replaced. Null removes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}, {"secret_headers": {"X-Old": None}}]})

    url: str = Field(default=UNSENT, description="https, and not a private address.")
    description: str = Field(default=UNSENT)
    types: list[str] = Field(
        default=UNSENT,
        description="Event types that it wants; `*` stands for any characters or none; case matters. Empty: all.",
    )
    filter: dict[str, Any] | None = Field(
        default=UNSENT,
        description="What an event's data must be like; null: anything.",
        examples=[{"customer": {"plan": {"$in": ["pro", "enterprise"]}}}],
    )
    headers: dict[str, str] = Field(
        default=UNSENT,
        description="Sent with every request, and shown to whoever may read.",
        examples=[{"X-Team": "a"}],
    )
    secret_headers: dict[str, str | None] | None = Field(
        default=UNSENT,
        description="Sent with every request; only their names are shown again. Null as a value removes that one.",
        examples=[{"X-Api-Key": "the key"}],
    )
    auth: AuthIn | None = Field(default=UNSENT, description="Null: none.")
    tls: TlsIn | None = Field(default=UNSENT, description="Null: the public authorities, and nothing of ours to show.")
    envelope: Literal["none", "standard"] = Field(
        default=UNSENT, description="`standard`: the body is `{type, timestamp, data}` instead of the data alone."
    )
    enabled: bool = Field(default=UNSENT)
    verify: bool = Field(
        default=UNSENT,
        description="Its URL must answer a challenge (`POST …/verify`) before it is enabled, and again when the URL is "
        "changed.",
    )
    order: OrderIn = Field(default=UNSENT)
    retry: RetryIn = Field(default=UNSENT)
    limits: LimitsIn = Field(default=UNSENT)
    rate_limit: RateLimitIn | None = Field(default=UNSENT, description="Null: no limit.")
    capability: CapabilityIn = Field(default=UNSENT)
    conflict_accepts: bool = Field(
        default=UNSENT, description="A 409 answer says that the receiver had the event already."
    )


class EndpointNew(EndpointChange):
    """An endpoint to make."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    url: str = Field(description="https, and not a private address.")
    receives: Literal["events", "operational", "operational_all"] = Field(
        default=UNSENT,
        description="`events`: what is submitted. `operational`: what Relay says about the tenant. `operational_all`: "
        "about every tenant; for an operator's key. It cannot be changed later.",
    )
    secret: str = Field(
        default=UNSENT, description="`whsec_…` or `whsk_…`: your own signing secret; without it one is made."
    )
    signature: Literal["v1", "v1a"] = Field(
        default=UNSENT,
        description="The kind of the secret that is made: `v1` shared (HMAC-SHA256), `v1a` a pair (ed25519).",
    )


class Retry(BaseModel):
    schedule: list[int]
    jitter: float
    max_age_hours: int


class Limits(BaseModel):
    in_flight: int
    timeout_ms: int | None
    connect_timeout_ms: int | None


class RateLimit(BaseModel):
    per_second: float
    burst: int | None


class Order(BaseModel):
    ordered: bool
    patience: int | None


class Capability(BaseModel):
    idempotent: bool
    window_hours: int
    query_url: str | None


class Auth(BaseModel):
    """Without what is secret of it."""

    kind: Literal["basic", "bearer", "oauth2"]
    username: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scopes: list[str] | None = None
    audience: str | None = None
    auth_style: Literal["header", "body"] | None = None


class Tls(BaseModel):
    client_certificate: str | None
    ca_certificates: str | None


class Health(BaseModel):
    """How sending to it has been going."""

    breaker: Literal["closed", "open", "half_open"] = Field(
        default="closed",
        description="Open: nothing is sent until `open_until`. Half open: one delivery at a time tries.",
    )
    open_until: datetime | None = None
    failing_since: datetime | None = Field(default=None, description="Nothing was accepted since; null: not failing.")
    failing_count: int = Field(default=0, description="Deliveries of which no attempt was accepted since.")
    disables_at: datetime | None = Field(
        default=None, description="When it will be disabled if nothing is accepted until then."
    )
    accepted_at: datetime | None = Field(default=None, description="When something was accepted last, roughly.")
    failed_at: datetime | None = Field(default=None, description="When an attempt failed last.")
    last_error: str = Field(default="", description="Of that attempt.")


class Verification(BaseModel):
    """Whether its URL must have answered a challenge, and when it did."""

    required: bool
    verified_at: datetime | None


class EndpointItem(BaseModel):
    """An endpoint, without what is secret of it."""

    id: str = Field(examples=[ENDPOINT])
    url: str
    description: str
    types: list[str]
    filter: Any = Field(description="Null: anything.")
    headers: dict[str, str]
    secret_headers: list[str] = Field(description="Their names.", examples=[["X-Api-Key"]])
    auth: Auth | None
    tls: Tls
    envelope: Literal["none", "standard"]
    enabled: bool
    disabled_reason: str
    verification: Verification
    receives: Literal["events", "operational", "operational_all"]
    blocked_until: datetime | None = Field(
        description="Nothing is sent before: the receiver asked for a pause, or there was no access token."
    )
    order: Order
    retry: Retry
    limits: Limits
    rate_limit: RateLimit | None
    capability: Capability
    conflict_accepts: bool
    health: Health
    created_at: datetime
    updated_at: datetime


class Line(BaseModel):
    """The deliveries of an ordered endpoint that wait for their turn, and the first of them, for which they wait."""

    length: int = Field(description="How many stand in it, counted up to 1,000.")
    more: bool = Field(description="There are more than that.")
    delivery_id: str = Field(examples=[DELIVERY])
    status: str = Field(description="Of its operation.")
    attempts: int
    since: datetime | None = Field(description="When the first one was first sent.")
    hold: str = Field(description="Why it holds the others.", examples=["later"])
    why: str
    until: datetime | None = Field(description="When it may go on by itself.")


class Endpoint(EndpointItem):
    """An endpoint with what one look-up more tells of it."""

    public_key: str | None = Field(description="`v1a`: what the receiver verifies deliveries with.", examples=[None])
    question_key: str | None = Field(
        description="`v1a`: what the receiver verifies Relay's questions with.", examples=[None]
    )
    line: Line | None = Field(description="Null: nobody stands in one.")
    warning: str | None = Field(
        default=None, description="In the answer to a saved `url`: why nothing would be sent to it at this moment."
    )


class EndpointMade(Endpoint):
    """A new endpoint, with its secret: the only time that it is shown."""

    secret: str = Field(examples=["whsec_…"])


class EndpointPage(Page):
    items: list[EndpointItem]
