"""Endpoints: made, changed and removed, with every rule that a setting must keep. Used by the API and by the admin.

A rule that is broken is reported under the column's name, and all of them at once: `EndpointRefused.problems`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from deliveries import ids
from deliveries.egress import EgressPolicy, UrlRefused
from deliveries.models import Endpoint
from deliveries.sealing import seal
from deliveries.signing import BadSecret, new_secret, secret_bytes
from deliveries.timing import longest_deadline_ms
from deliveries.transport.base import Refused, header_lines
from ledger.models import Clock

URL_LENGTH = 2048
QUERY_URL_LENGTH = 1536
"""Shorter, because a question adds the ids of operation, event and run."""
DESCRIPTION_LENGTH = 2000
TYPES = 100
HEADERS, HEADER_NAME_LENGTH, HEADER_VALUE_LENGTH, HEADERS_BYTES = 50, 100, 4096, 8192
TRIES, LONGEST_DELAY = 50, 7 * 86400
HOURS = 8760
IN_FLIGHT = 1000
SHORTEST_TIMEOUT_MS = 100

_TYPE_PATTERN = re.compile(r"[A-Za-z0-9_.*-]{1,128}")
_RESERVED = frozenset(
    {
        "content-type", "content-encoding", "idempotency-key", "traceparent", "tracestate",
    }
)  # fmt: skip
"""Besides those that frame the message, which the transport refuses."""
_RESERVED_PREFIXES = ("webhook-", "relay-", "proxy-")


class Changes(TypedDict, total=False):
    """Columns that a caller may set. `secret` only at creation."""

    url: str
    description: str
    types: list[str]
    headers: dict[str, str]
    secret: str
    enabled: bool
    idempotent: bool
    window_hours: int
    query_url: str | None
    retry_schedule: list[int]
    retry_jitter: float
    retry_max_age_hours: int
    in_flight: int
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: the column and one plain sentence."""

    field: str
    detail: str


class EndpointRefused(ValueError):
    """Nothing was stored: `problems` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.detail}" for problem in problems))
        self.problems = problems


class RuleBroken(ValueError):
    """A value breaks the rule of its column."""


def longest_timeout_ms() -> int:
    """The longest `timeout_ms` that an endpoint may have."""
    return longest_deadline_ms(settings.RELAY_LEASE_TTL_MS, settings.RELAY_HEARTBEAT_MS)


def create(tenant_id: str, changes: Changes) -> tuple[Endpoint, str]:
    """Make an endpoint and return it with its signing secret, which is never shown again.

    `EndpointRefused` when a rule is broken; `url` is required.
    """
    given = dict(changes)
    secret = str(given.pop("secret")) if "secret" in given else new_secret()
    problems = _broken(given) + _bad_secret(secret)
    if "url" not in given:
        problems += (Problem("url", "is required"),)
    if problems:
        raise EndpointRefused(problems)
    # Made here and not by the database, because the sealed secret is bound to the row's id.
    endpoint_id = ids.time_ordered()
    Endpoint.objects.create(
        endpoint_id=endpoint_id,
        tenant_id=tenant_id,
        secret_sealed=seal(secret, f"endpoint:{endpoint_id}"),
        **given,
    )
    return Endpoint.objects.get(endpoint_id=endpoint_id), secret


def update(tenant_id: str, endpoint_id: UUID, changes: Changes) -> Endpoint | None:
    """Set the named columns and no others, in one statement; None when the tenant has no such endpoint.

    Two callers who change different columns do not undo each other; of two who change the same one, the later wins.
    """
    given = dict(changes)
    problems = _broken(given)
    if problems:
        raise EndpointRefused(problems)
    if given.get("enabled") is True:
        given |= {"disabled_reason": "", "blocked_until": None}
    elif given.get("enabled") is False:
        given |= {"disabled_reason": "by request"}
    found = living(tenant_id).filter(endpoint_id=endpoint_id)
    if given and not found.update(**given, updated_at=Clock()):
        return None
    return found.first()


def delete(tenant_id: str, endpoint_id: UUID) -> bool:
    """Remove an endpoint; False when the tenant has no such endpoint (any more).

    The row stays for the deliveries that name it. What still waits for it is cancelled by the reconciler, not here.
    """
    now = Clock()
    changed = (
        living(tenant_id)
        .filter(endpoint_id=endpoint_id)
        .update(deleted_at=now, enabled=False, disabled_reason="deleted", updated_at=now)
    )
    return changed == 1


def living(tenant_id: str) -> QuerySet[Endpoint]:
    """The tenant's endpoints that were not deleted."""
    return Endpoint.objects.filter(tenant_id=tenant_id, deleted_at=None)


def _broken(given: Mapping[str, Any]) -> tuple[Problem, ...]:
    problems = []
    for column, value in given.items():
        try:
            _RULES[column](value)
        except RuleBroken as broken:
            problems.append(Problem(column, str(broken)))
    return tuple(problems)


def _bad_secret(secret: str) -> tuple[Problem, ...]:
    try:
        secret_bytes(secret)
    except BadSecret as bad:
        return (Problem("secret", str(bad)),)
    return ()


def _url(value: str) -> None:
    if len(value) > URL_LENGTH:
        raise RuleBroken(f"is longer than {URL_LENGTH} characters")
    try:
        EgressPolicy.from_settings().check_url(value)
    except UrlRefused as refused:
        raise RuleBroken(str(refused)) from refused


def _query_url(value: str | None) -> None:
    if value is None:
        return
    if len(value) > QUERY_URL_LENGTH:
        raise RuleBroken(f"is longer than {QUERY_URL_LENGTH} characters")
    _url(value)


def _description(value: str) -> None:
    if len(value) > DESCRIPTION_LENGTH:
        raise RuleBroken(f"is longer than {DESCRIPTION_LENGTH} characters")
    if "\0" in value:
        raise RuleBroken("holds a NUL character")


def _types(value: list[str]) -> None:
    if len(value) > TYPES:
        raise RuleBroken(f"has more than {TYPES} entries")
    for pattern in value:
        if not _TYPE_PATTERN.fullmatch(pattern):
            raise RuleBroken(f"{pattern[:60]!r} is not 1 to 128 characters of A-Z a-z 0-9 _ . - and *")


def _headers(value: dict[str, str]) -> None:
    if len(value) > HEADERS:
        raise RuleBroken(f"has more than {HEADERS} headers")
    if sum(len(name) + len(text) for name, text in value.items()) > HEADERS_BYTES:
        raise RuleBroken(f"is longer than {HEADERS_BYTES} bytes in all")
    seen: set[str] = set()
    for name, text in value.items():
        lower = name.lower()
        if len(name) > HEADER_NAME_LENGTH:
            raise RuleBroken(f"{name[:60]!r} is longer than {HEADER_NAME_LENGTH} characters")
        if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            raise RuleBroken(f"{name!r} is set by Relay and cannot be chosen")
        if lower in seen:
            raise RuleBroken(f"{name!r} is named twice")
        # The value itself is not repeated in the message: it may be a credential.
        if len(text) > HEADER_VALUE_LENGTH or text != text.strip():
            raise RuleBroken(f"the value of {name!r} has outer spaces or more than {HEADER_VALUE_LENGTH} characters")
        # The transport has the last word, so that nothing is stored which it would refuse at every send.
        try:
            header_lines(((name, text),))
        except Refused as refused:
            raise RuleBroken(f"{name!r} cannot be sent: {refused}") from refused
        seen.add(lower)


def _schedule(value: list[int]) -> None:
    if len(value) > TRIES:
        raise RuleBroken(f"has more than {TRIES} entries")
    if any(not 1 <= seconds <= LONGEST_DELAY for seconds in value):
        raise RuleBroken(f"every entry is a number of seconds from 1 to {LONGEST_DELAY}")


def _between(least: float, most: float, unit: str) -> Callable[[float], None]:
    def rule(value: float) -> None:
        if not least <= value <= most:
            raise RuleBroken(f"must be from {least} to {most}{unit}")

    return rule


def _timeout(value: int | None) -> None:
    most = longest_timeout_ms()
    if value is not None and not SHORTEST_TIMEOUT_MS <= value <= most:
        raise RuleBroken(
            f"must be from {SHORTEST_TIMEOUT_MS} to {most} milliseconds: a longer request would outlive the lease it "
            "is sent under (RELAY_LEASE_TTL_MS)"
        )


def _any(value: object) -> None:
    """Every value of its type will do."""


_RULES: dict[str, Callable[[Any], None]] = {
    "url": _url,
    "description": _description,
    "types": _types,
    "headers": _headers,
    "enabled": _any,
    "idempotent": _any,
    "window_hours": _between(0, HOURS, " hours"),
    "query_url": _query_url,
    "retry_schedule": _schedule,
    "retry_jitter": _between(0, 1, ""),
    "retry_max_age_hours": _between(1, HOURS, " hours"),
    "in_flight": _between(1, IN_FLIGHT, " requests"),
    "timeout_ms": _timeout,
}
