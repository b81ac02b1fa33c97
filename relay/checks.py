"""System checks: combinations of settings under which the protocol's promises would not hold are refused.

They run at every management command that checks, and so at every start of the web server and of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Warn
from django.db import DEFAULT_DB_ALIAS, OperationalError, ProgrammingError, connections, transaction

from deliveries.egress import EgressPolicy
from deliveries.timing import SETTLE_BUDGET_MS, longest_deadline_ms
from ledger.statements import sqlstate

METADATA = "169.254.169.254"


@dataclass(frozen=True, slots=True)
class Timing:
    """The three durations that must fit together, in milliseconds."""

    lease_ttl_ms: int
    heartbeat_ms: int
    http_timeout_ms: int
    sweep_ms: int


def _lease_outlives_the_send(timing: Timing) -> CheckMessage | None:
    missing = timing.http_timeout_ms - longest_deadline_ms(timing.lease_ttl_ms, timing.heartbeat_ms)
    if missing <= 0:
        return None
    needed = timing.lease_ttl_ms + missing
    return Error(
        f"RELAY_LEASE_TTL_MS is {timing.lease_ttl_ms}, but a send may need {needed}: a lease must outlive the send it "
        "covers.",
        hint=f"Set RELAY_LEASE_TTL_MS to at least RELAY_HTTP_TIMEOUT_MS ({timing.http_timeout_ms}) + "
        f"{SETTLE_BUDGET_MS} to settle + one RELAY_HEARTBEAT_MS ({timing.heartbeat_ms}) = {needed}, "
        "or lower RELAY_HTTP_TIMEOUT_MS.",
        id="relay.E001",
    )


def _heartbeats_fit_into_the_lease(timing: Timing) -> CheckMessage | None:
    if timing.heartbeat_ms * 3 < timing.lease_ttl_ms:
        return None
    return Error(
        f"RELAY_HEARTBEAT_MS is {timing.heartbeat_ms}, which is not under a third of RELAY_LEASE_TTL_MS "
        f"({timing.lease_ttl_ms}): one heartbeat that comes late would cost the lease.",
        hint=f"Set RELAY_HEARTBEAT_MS to less than {timing.lease_ttl_ms // 3}, or raise RELAY_LEASE_TTL_MS.",
        id="relay.E002",
    )


def _sweeps_are_not_rarer_than_leases(timing: Timing) -> CheckMessage | None:
    if timing.sweep_ms <= timing.lease_ttl_ms:
        return None
    return Warn(
        f"RELAY_SWEEP_MS is {timing.sweep_ms}, longer than RELAY_LEASE_TTL_MS ({timing.lease_ttl_ms}): the work of a "
        "lost worker waits for the sweep, not for its lease.",
        hint=f"Set RELAY_SWEEP_MS to at most {timing.lease_ttl_ms}.",
        id="relay.W001",
    )


TIMING_RULES: tuple[Callable[[Timing], CheckMessage | None], ...] = (
    _lease_outlives_the_send,
    _heartbeats_fit_into_the_lease,
    _sweeps_are_not_rarer_than_leases,
)


def judge_timing(timing: Timing) -> list[CheckMessage]:
    """What is wrong with these durations, if anything."""
    return [message for rule in TIMING_RULES if (message := rule(timing)) is not None]


@register(Tags.compatibility)
def check_timing(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return judge_timing(
        Timing(
            lease_ttl_ms=settings.RELAY_LEASE_TTL_MS,
            heartbeat_ms=settings.RELAY_HEARTBEAT_MS,
            http_timeout_ms=settings.RELAY_HTTP_TIMEOUT_MS,
            sweep_ms=settings.RELAY_SWEEP_MS,
        )
    )


@register(Tags.compatibility)
def check_huey(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Huey must never run tasks inside the request, nor keep results."""
    found: list[CheckMessage] = []
    if settings.HUEY.immediate:
        found.append(Error("HUEY is in immediate mode: requests would run the dispatcher themselves.", id="relay.E003"))
    if settings.HUEY.results:
        found.append(
            Error("HUEY keeps results: nobody reads them, and its table would grow without end.", id="relay.E004")
        )
    return found


@register(Tags.security)
def check_egress(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What may be called should not hold the place where clouds give credentials to whoever asks."""
    if not EgressPolicy.from_settings().allows(METADATA, 80, plain=True):
        return []
    return [
        Warn(
            f"RELAY_EGRESS_ALLOW contains {METADATA}, where clouds give out a machine's credentials: whoever may write "
            "endpoints could have Relay call it.",
            hint="Name smaller networks, or put 169.254.0.0/16 into RELAY_EGRESS_DENY.",
            id="relay.W005",
        )
    ]


@register(Tags.compatibility, deploy=True)
def check_failpoint(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Where something is at stake no process may be told to fail."""
    if settings.RELAY_FAILPOINT is None:
        return []
    return [
        Warn(
            f"RELAY_FAILPOINT is set ({settings.RELAY_FAILPOINT}): dispatchers will die or stand still on purpose.",
            hint="Unset it: it is for trying out what a crash leads to.",
            id="relay.W003",
        )
    ]


@register(Tags.database)
def check_transactions(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The ledger's statements rely on READ COMMITTED, PostgreSQL, and transactions that they open themselves."""
    database = settings.DATABASES["default"]
    found: list[CheckMessage] = []
    if database["ENGINE"] != "django.db.backends.postgresql":
        found.append(Error("DATABASE_URL must name PostgreSQL: the ledger relies on its locks.", id="relay.E005"))
    if database.get("ATOMIC_REQUESTS"):
        found.append(
            Error("ATOMIC_REQUESTS is on: a transaction would stay open over a whole request.", id="relay.E006")
        )
    if database.get("OPTIONS", {}).get("isolation_level") is not None:
        found.append(
            Error("DATABASES sets an isolation level: the ledger's statements are READ COMMITTED.", id="relay.E007")
        )
    return found


@register(Tags.database)
def check_roles(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Whoever Relay runs as should not own its tables. Asks the database, and so only where one is named."""
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT current_user, rolsuper OR EXISTS (SELECT FROM pg_class WHERE relname LIKE 'ledger\\_%%'"
            " AND relkind = 'r' AND pg_has_role(current_user, relowner, 'MEMBER')) FROM pg_roles"
            " WHERE rolname = current_user",
        )
        role, owns = cursor.fetchone()
    if not owns:
        return []
    return [
        Warn(
            f"Relay runs as the database role {role}, which owns its tables: PostgreSQL would let it rewrite or delete "
            "what is on record.",
            hint="Run `manage.py harden`, and set DATABASE_URL and RELAY_MIGRATE_DATABASE_URL as it says.",
            id="relay.W002",
        )
    ]


LOOK_FOR_KEYS_MS = 20_000
"""How long the look at every endpoint may take. 100,000 of them take a quarter of a second."""
_NOT_MIGRATED = frozenset({"42P01", "42703"})  # no such table, no such column
_TOO_LONG = "57014"


@register(Tags.database)
def check_sealing_keys(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The key ring opens what is stored. Asks the database, and so only where one is named.

    Without the key nothing could be signed, and every delivery of those endpoints would wait; or, worse, a web server
    with one ring and workers with another would each write what the other cannot read.
    """
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    # Read late: checks are registered before there are models.
    from deliveries.resealing import lost_keys

    try:
        with transaction.atomic(), connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{LOOK_FOR_KEYS_MS}ms"])
            lost = lost_keys()
    except ProgrammingError as error:
        if sqlstate(error) in _NOT_MIGRATED:
            return []  # Nothing can be sealed in a table that is not there yet.
        raise
    except OperationalError as error:
        if sqlstate(error) != _TOO_LONG:
            raise
        return [
            Warn(
                f"Under which keys the endpoints' secrets are sealed could not be seen within {LOOK_FOR_KEYS_MS} ms.",
                hint="If deliveries wait with an error about a key, look at RELAY_SECRET_KEY.",
                id="relay.W004",
            )
        ]
    if not lost:
        return []
    named = ", ".join(f"{one.key_id or 'none that is a key'} ({one.endpoints} endpoints)" for one in lost[:5])
    return [
        Error(
            "RELAY_SECRET_KEY does not open secrets that are stored: they are sealed under other keys, whose ids are "
            f"{named}{' and more' if len(lost) > 5 else ''}.",
            hint="Put the former key into RELAY_SECRET_KEY_FALLBACKS (and run `manage.py rotate_secret_key` before it "
            "leaves there). If it is lost for good, start with --skip-checks and give those endpoints new secrets: "
            'POST /v1/endpoints/{id}/secret/rotate with {"overlap_hours": 0}.',
            id="relay.E008",
        )
    ]
