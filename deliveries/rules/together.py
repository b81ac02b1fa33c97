"""Rules about settings beside one another, judged on the endpoint as it would be after the change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.conf import settings

from deliveries.rules.broken import Problem
from deliveries.rules.columns import HEADERS


def problems(wanted: Mapping[str, Any], given: Collection[str]) -> tuple[Problem, ...]:
    """What `wanted` (columns) breaks, each told at that of its columns which the caller has `given`."""
    found = (rule(wanted) for rule in _RULES)
    return tuple(
        Problem(next((field for field in fields if field in given), fields[0]), detail)
        for broken in found
        if broken is not None
        for fields, detail in (broken,)
    )


_Broken = tuple[tuple[str, ...], str] | None


def _burst(wanted: Mapping[str, Any]) -> _Broken:
    if wanted["rate_burst"] is not None and wanted["rate_per_second"] is None:
        return ("rate_burst", "rate_per_second"), "a burst needs a rate per second"
    return None


def _patience(wanted: Mapping[str, Any]) -> _Broken:
    if wanted["order_patience"] is not None and not wanted["ordered"]:
        return ("order_patience", "ordered"), "patience is for ordered endpoints: set it to null, or order to true"
    return None


def _connect(wanted: Mapping[str, Any]) -> _Broken:
    whole = wanted["timeout_ms"] or settings.RELAY_HTTP_TIMEOUT_MS
    if wanted["connect_timeout_ms"] is not None and wanted["connect_timeout_ms"] > whole:
        return ("connect_timeout_ms", "timeout_ms"), f"connecting may not take longer than the whole: {whole} ms"
    return None


def _header_names(wanted: Mapping[str, Any]) -> _Broken:
    plain = {name.lower() for name in wanted["headers"]}
    secret = {name.lower() for name in wanted["secret_headers"]}
    fields = ("secret_headers", "headers")
    if both := plain & secret:
        return fields, f"{min(both)!r} is among the other headers, too"
    if len(plain) + len(secret) > HEADERS:
        return fields, f"there are more than {HEADERS} headers in all"
    return None


def _authorization(wanted: Mapping[str, Any]) -> _Broken:
    named = {name.lower() for name in (*wanted["headers"], *wanted["secret_headers"])}
    if wanted["auth"] is not None and "authorization" in named:
        return ("auth", "secret_headers", "headers"), "auth and a header of the name authorization exclude one another"
    return None


def _pair(wanted: Mapping[str, Any]) -> _Broken:
    certificate, key = wanted["client_certificate"], wanted["client_key"]
    if bool(certificate) == bool(key):
        return None
    if certificate:
        return ("client_key",), "a client certificate needs its key"
    return ("client_certificate",), "a client key needs its certificate"


_RULES: tuple[Callable[[Mapping[str, Any]], _Broken], ...] = (
    _burst, _patience, _connect, _header_names, _authorization, _pair,
)  # fmt: skip
