"""The rule of each column of an endpoint that a person may set."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings

from deliveries import filters
from deliveries.egress import EgressPolicy, UrlRefused
from deliveries.models import Envelope
from deliveries.rules.broken import RuleBroken
from deliveries.timing import longest_deadline_ms
from deliveries.transport.base import Refused, header_lines

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
SLOWEST_RATE, FASTEST_RATE, LARGEST_BURST = 0.001, 10_000, 100_000
MOST_PATIENCE = TRIES + 1

_TYPE_PATTERN = re.compile(r"[A-Za-z0-9_.*-]{1,128}")
_RESERVED = frozenset(
    {
        "content-type", "content-encoding", "idempotency-key", "traceparent", "tracestate", "user-agent",
    }
)  # fmt: skip
"""Besides those that frame the message, which the transport refuses."""
_RESERVED_PREFIXES = ("webhook-", "relay-", "proxy-")


def longest_timeout_ms() -> int:
    """The longest `timeout_ms` that an endpoint may have."""
    return longest_deadline_ms(settings.RELAY_LEASE_TTL_MS, settings.RELAY_HEARTBEAT_MS)


def reserved(name: str) -> bool:
    """Whether a header of this name is Relay's own, and cannot be an endpoint's."""
    lower = name.lower()
    return lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES)


def url(value: str) -> None:
    """A URL that may be called."""
    if len(value) > URL_LENGTH:
        raise RuleBroken(f"is longer than {URL_LENGTH} characters")
    try:
        EgressPolicy.from_settings().check_url(value)
    except UrlRefused as refused:
        raise RuleBroken(str(refused)) from refused


def headers(value: Mapping[str, str]) -> None:
    """Header names with their values, which may be credentials: no message repeats one."""
    if len(value) > HEADERS:
        raise RuleBroken(f"has more than {HEADERS} headers")
    if sum(len(name) + len(text) for name, text in value.items()) > HEADERS_BYTES:
        raise RuleBroken(f"is longer than {HEADERS_BYTES} bytes in all")
    seen: set[str] = set()
    for name, text in value.items():
        lower = name.lower()
        if len(name) > HEADER_NAME_LENGTH:
            raise RuleBroken(f"{name[:60]!r} is longer than {HEADER_NAME_LENGTH} characters")
        if reserved(name):
            raise RuleBroken(f"{name!r} is set by Relay and cannot be chosen")
        if lower in seen:
            raise RuleBroken(f"{name!r} is named twice")
        if len(text) > HEADER_VALUE_LENGTH or text != text.strip():
            raise RuleBroken(f"the value of {name!r} has outer spaces or more than {HEADER_VALUE_LENGTH} characters")
        # The transport has the last word, so that nothing is stored which it would refuse at every send.
        try:
            header_lines(((name, text),))
        except Refused as refused:
            raise RuleBroken(f"{name!r} cannot be sent: {refused}") from refused
        seen.add(lower)


def _query_url(value: str | None) -> None:
    if value is None:
        return
    if len(value) > QUERY_URL_LENGTH:
        raise RuleBroken(f"is longer than {QUERY_URL_LENGTH} characters")
    url(value)


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


def _filter(value: Any) -> None:
    if value is None:
        return
    try:
        filters.check(value)
    except filters.FilterRefused as refused:
        raise RuleBroken(str(refused)) from refused


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


def _or_null(rule: Callable[[Any], None]) -> Callable[[Any], None]:
    def either(value: Any) -> None:
        if value is not None:
            rule(value)

    return either


def _timeout(value: int) -> None:
    most = longest_timeout_ms()
    if not SHORTEST_TIMEOUT_MS <= value <= most:
        raise RuleBroken(
            f"must be from {SHORTEST_TIMEOUT_MS} to {most} milliseconds: a longer request would outlive the lease it "
            "is sent under (RELAY_LEASE_TTL_MS)"
        )


def _rate(value: float) -> None:
    if not math.isfinite(value) or not SLOWEST_RATE <= value <= FASTEST_RATE:
        raise RuleBroken(f"must be from {SLOWEST_RATE} to {FASTEST_RATE} a second")


def _envelope(value: str) -> None:
    if value not in Envelope.values:
        raise RuleBroken(f"must be one of {', '.join(Envelope.values)}")


def _any(value: object) -> None:
    """Every value of its type will do."""


RULES: dict[str, Callable[[Any], None]] = {
    "url": url,
    "description": _description,
    "types": _types,
    "filter": _filter,
    "headers": headers,
    "envelope": _envelope,
    "enabled": _any,
    "must_verify": _any,
    "idempotent": _any,
    "window_hours": _between(0, HOURS, " hours"),
    "query_url": _query_url,
    "conflict_accepts": _any,
    "retry_schedule": _schedule,
    "retry_jitter": _between(0, 1, ""),
    "retry_max_age_hours": _between(1, HOURS, " hours"),
    "ordered": _any,
    "order_patience": _or_null(_between(1, MOST_PATIENCE, " attempts")),
    "in_flight": _between(1, IN_FLIGHT, " requests"),
    "rate_per_second": _or_null(_rate),
    "rate_burst": _or_null(_between(1, LARGEST_BURST, " requests")),
    "timeout_ms": _or_null(_timeout),
    "connect_timeout_ms": _or_null(_timeout),
}
