"""Endpoints: made, changed and removed. Used by the API and by the admin.

What settings must keep to is in `endpoint_settings`: a broken rule is reported under the column's name, and all of them
at once. What is secret is taken in the plain and stored sealed; nothing here gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from deliveries import health, ids, operational
from deliveries.endpoint_settings import Changes, EndpointRefused, lacked, settings_of, signing_secret
from deliveries.models import DisabledBy, Endpoint, Receives
from deliveries.rules.broken import Problem
from deliveries.rules.columns import (
    DESCRIPTION_LENGTH,
    QUERY_URL_LENGTH,
    URL_LENGTH,
    longest_timeout_ms,
)
from deliveries.sealing import seal
from ledger.models import Clock

__all__ = [
    "DESCRIPTION_LENGTH",
    "QUERY_URL_LENGTH",
    "URL_LENGTH",
    "Changes",
    "EndpointRefused",
    "Problem",
    "create",
    "delete",
    "living",
    "longest_timeout_ms",
    "update",
    "verified",
]

Check = Callable[[datetime], None]
BY_REQUEST = "by request"
"""Why an endpoint is disabled, where nobody said more."""
UNVERIFIED = {
    "enabled": False, "disabled_reason": "its URL is not verified", "disabled_by": DisabledBy.VERIFICATION
}  # fmt: skip
"""How an endpoint is until its URL has answered a challenge."""


def create(tenant_id: str, changes: Changes) -> tuple[Endpoint, str]:
    """Make an endpoint and return it with its signing secret, which is never shown again.

    `EndpointRefused` when a rule is broken; `url` is required.
    """
    given = dict(changes)
    receives = str(given.pop("receives", Receives.EVENTS))
    secret, problems = signing_secret(given.pop("secret", None), given.pop("signature", None))
    if "url" not in given:
        problems += (Problem("url", "is required"),)
    if receives not in Receives.values:
        problems += (Problem("receives", f"must be one of {', '.join(Receives.values)}"),)
    # Made here and not by the database, because what is sealed is bound to the row's id.
    row = Endpoint(endpoint_id=ids.time_ordered(), tenant_id=tenant_id)
    stored = settings_of(row, given, problems)
    if stored.get("must_verify"):
        stored |= UNVERIFIED
    elif stored.get("enabled") is False:
        stored |= {"disabled_by": DisabledBy.REQUEST}
    Endpoint.objects.create(
        endpoint_id=row.endpoint_id,
        tenant_id=tenant_id,
        receives=receives,
        secret_sealed=seal(secret, f"endpoint:{row.endpoint_id}"),
        **stored,
    )
    operational.forget()
    return Endpoint.objects.get(endpoint_id=row.endpoint_id), secret


def update(
    tenant_id: str, endpoint_id: UUID, changes: Changes, *, reason: str = BY_REQUEST, check: Check | None = None
) -> Endpoint | None:
    """Set the named columns and no others; None when the tenant has no such endpoint. `reason`: why, where it is
    disabled by this.

    `check` is called with the row's `updated_at` under its lock; what it raises leaves everything as it was.

    Two callers who change different columns do not undo each other; of two who change the same one, the later wins. The
    rules that join columns are judged under the row's lock, on what is there then.
    """
    given = dict(changes)
    with transaction.atomic():
        found = living(tenant_id).filter(endpoint_id=endpoint_id)
        row = found.select_for_update(no_key=True).first()
        if row is not None and check is not None:
            check(row.updated_at)
        if row is None or not given:
            return row
        stored = settings_of(row, given, ())
        if _unverified(row, stored):
            if stored.get("enabled") is True and not (stored.keys() & {"url", "must_verify"}):
                raise EndpointRefused((Problem("enabled", "its URL is not verified: send it a challenge first"),))
            stored |= {"verified_at": None, **UNVERIFIED}
        elif stored.get("enabled") is True:
            stored |= {"disabled_reason": "", "disabled_by": "", "blocked_until": None}
            health.reset(endpoint_id)
        elif stored.get("enabled") is False:
            stored |= {"disabled_reason": reason, "disabled_by": DisabledBy.REQUEST}
        if stored.get("url", row.url) != row.url:
            stored["blocked_until"] = None  # it was another receiver that asked for a pause, or was sick
            health.reset(endpoint_id)
        if lacked(row, stored):
            stored["blocked_until"] = None
        found.update(**stored, updated_at=Clock())
        changed = found.get()
        _tell(row, changed)
        return changed


def verified(tenant_id: str, endpoint_id: UUID, url: str) -> Endpoint | None:
    """The URL has answered a challenge: enable its endpoint. None when that has another URL by now, or is gone."""
    with transaction.atomic():
        found = living(tenant_id).filter(endpoint_id=endpoint_id, url=url, must_verify=True)
        row = found.select_for_update(no_key=True).first()
        if row is None:
            return None
        now = Clock()
        found.update(
            verified_at=now, enabled=True, disabled_reason="", disabled_by="", blocked_until=None, updated_at=now
        )
        health.reset(endpoint_id)
        operational.forget()
        return found.get()


def _unverified(row: Endpoint, stored: Mapping[str, Any]) -> bool:
    """Whether the endpoint, after the change, must still prove that its URL wants what is sent."""
    if not stored.get("must_verify", row.must_verify):
        return False
    return row.verified_at is None or stored.get("url", row.url) != row.url


def _tell(was: Endpoint, now: Endpoint) -> None:
    """Tell who listens that it was disabled, or that it is enabled after Relay or its receiver had disabled it."""
    operational.forget()
    if was.enabled and not now.enabled:
        health.tell_disabled([now.endpoint_id])
    elif now.enabled and not was.enabled and was.disabled_by in {DisabledBy.RELAY, DisabledBy.RECEIVER}:
        health.tell_recovered([now], now.updated_at)


def delete(tenant_id: str, endpoint_id: UUID, *, check: Check | None = None) -> bool:
    """Remove an endpoint; False when the tenant has no such endpoint (any more). `check` as in `update`.

    The row stays for the deliveries that name it. What still waits for it is cancelled by the reconciler, not here.
    """
    with transaction.atomic():
        found = living(tenant_id).filter(endpoint_id=endpoint_id)
        row = found.select_for_update(no_key=True).first()
        if row is None:
            return False
        if check is not None:
            check(row.updated_at)
        now = Clock()
        found.update(
            deleted_at=now, enabled=False, disabled_reason="deleted", disabled_by=DisabledBy.REQUEST, updated_at=now
        )
    operational.forget()
    return True


def living(tenant_id: str) -> QuerySet[Endpoint]:
    """The tenant's endpoints that were not deleted."""
    return Endpoint.objects.filter(tenant_id=tenant_id, deleted_at=None)
