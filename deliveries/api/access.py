"""Who is calling: the bearer key, the tenant it acts for, and the scopes it has."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from ninja.security.http import HttpAuthBase

from deliveries import ids, keys
from deliveries.api.errors import ApiError, invalid_field
from deliveries.keys import KeyRefusal
from deliveries.models import DEFAULT_TENANT, Scope, Tenant

TENANT_HEADER = "Relay-Tenant"
TENANT_REMEMBERED_FOR = 2.0

_CHALLENGE = 'Bearer realm="relay"'
_TENANT_FORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_tenants_seen: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Caller:
    """A key and the tenant that this request is about."""

    tenant_id: str
    actor: str
    """What is recorded as the author of a decision."""
    operator: bool
    """The key belongs to no tenant."""
    scopes: frozenset[str]
    named: bool
    """The request names a tenant."""

    def must_operate(self, what: str, scope: Scope = Scope.ADMIN) -> None:
        """403 unless this is an operator's key with the scope."""
        if not self.operator or scope.value not in self.scopes:
            raise ApiError(403, f"{what} takes an operator's key with the scope {scope.value}.")


class Request(HttpRequest):
    """A request that passed `BearerKey`."""

    auth: Caller


class BearerKey(HttpAuthBase):
    """`Authorization: Bearer KEY` (RFC 6750) with the scope that a route needs."""

    openapi_scheme = "bearer"

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        super().__init__()

    def __call__(self, request: HttpRequest) -> Caller:
        kind, _, text = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not text.strip():
            raise ApiError(401, "No key: send `Authorization: Bearer KEY`.", headers={"WWW-Authenticate": _CHALLENGE})
        key = keys.judge(text.strip())
        if isinstance(key, KeyRefusal):
            raise ApiError(
                401,
                f"This key is {key.value}.",
                code=f"key_{key.value}",
                headers={"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'},
            )
        if self.scope.value not in key.scopes:
            raise ApiError(
                403,
                f"This key lacks the scope {self.scope.value}.",
                code="missing_scope",
                headers={"WWW-Authenticate": f'{_CHALLENGE}, error="insufficient_scope", scope="{self.scope.value}"'},
            )
        return Caller(
            tenant_id=_tenant(request.headers.get(TENANT_HEADER), key.tenant_id),
            actor=f"{key.name} ({ids.render(ids.KEY, key.key_id)})",
            operator=key.tenant_id is None,
            scopes=frozenset(key.scopes),
            named=TENANT_HEADER in request.headers,
        )


def needs(scope: Scope) -> Any:
    """The `auth` of a route that needs `scope`."""
    return BearerKey(scope)


def _tenant(named: str | None, own: str | None) -> str:
    """The tenant that a request is about; `own` is None for the operator's key."""
    if own is not None:
        if named is not None and named != own:
            raise ApiError(403, f"This key belongs to one tenant; it cannot name another in {TENANT_HEADER}.")
        return own
    if named is None:
        return DEFAULT_TENANT
    if not _TENANT_FORM.fullmatch(named) or not _exists(named):
        raise invalid_field(TENANT_HEADER, "no such tenant")
    return named


def _exists(tenant_id: str) -> bool:
    """Only existence is remembered, and for two seconds: a new tenant is seen at once."""
    now = time.monotonic()
    if now < _tenants_seen.get(tenant_id, 0.0):
        return True
    if not Tenant.objects.filter(tenant_id=tenant_id).exists():
        return False
    if len(_tenants_seen) >= 1024:
        _tenants_seen.clear()
    _tenants_seen[tenant_id] = now + TENANT_REMEMBERED_FOR
    return True
