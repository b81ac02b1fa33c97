"""Endpoints, event types, keys and tenants: what `Relay` has under these names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from relay.client.configuration import Endpoint, EndpointItem, EventType, Job, Key, Rotated, Tenant, Tested
from relay.client.http import Http, Response, converted, path_of
from relay.client.paging import items


def _endpoint(answer: Response) -> Endpoint:
    return replace(answer.read(Endpoint), etag=answer.headers.get("ETag"))


@dataclass(frozen=True, repr=False)
class Endpoints:
    """`relay.endpoints`."""

    http: Http

    def list(self, *, limit: int | None = None, **filters: Any) -> Iterator[EndpointItem]:
        """The tenant's endpoints, newest first. Filters: `enabled`, `receives`."""
        return items(self.http, "/v1/endpoints", EndpointItem, filters, limit)

    def create(self, url: str, **settings: Any) -> Endpoint:
        """Make an endpoint; `settings` are those of `docs/endpoints.md`. Its `secret` is shown this once. Not repeated
        by itself when there is no answer: look whether it is there."""
        return _endpoint(self.http.send("POST", "/v1/endpoints", {"url": url, **settings}))

    def get(self, endpoint_id: str) -> Endpoint:
        """One endpoint, with its `etag`."""
        return _endpoint(self.http.get(f"/v1/endpoints/{path_of(endpoint_id)}"))

    def update(self, endpoint_id: str, *, etag: str | None = None, **changes: Any) -> Endpoint:
        """Change what is named and nothing else. `Changed` when the endpoint is no longer what `etag` names."""
        return _endpoint(self.http.send("PATCH", f"/v1/endpoints/{path_of(endpoint_id)}", changes, etag))

    def delete(self, endpoint_id: str, *, etag: str | None = None) -> None:
        """Delete it; what was not sent to it yet is cancelled."""
        self.http.send("DELETE", f"/v1/endpoints/{path_of(endpoint_id)}", etag=etag)

    def enable(self, endpoint_id: str, *, etag: str | None = None) -> Endpoint:
        """Send to it again, also what waits."""
        return _endpoint(self._act(endpoint_id, "enable", etag=etag))

    def disable(self, endpoint_id: str, *, reason: str | None = None, etag: str | None = None) -> Endpoint:
        """Send nothing more to it."""
        return _endpoint(self._act(endpoint_id, "disable", None if reason is None else {"reason": reason}, etag))

    def test(self, endpoint_id: str, **event: Any) -> Tested:
        """Send it a test event (`type`, `data`), and nobody else. `Conflict` while it is disabled."""
        return self._act(endpoint_id, "test", event or None).read(Tested)

    def verify(self, endpoint_id: str) -> Endpoint:
        """Have its URL answer a challenge, and enable it when it does. `Conflict` when it does not."""
        return _endpoint(self._act(endpoint_id, "verify"))

    def rotate_secret(self, endpoint_id: str, **how: Any) -> Rotated:
        """Replace its signing secret (`overlap_hours`, `secret`, `signature`). The new one is shown this once."""
        return self._act(endpoint_id, "secret/rotate", how).read(Rotated)

    def _act(self, endpoint_id: str, verb: str, body: Any = None, etag: str | None = None) -> Response:
        return self.http.send("POST", f"/v1/endpoints/{path_of(endpoint_id)}/{verb}", body, etag)


@dataclass(frozen=True, repr=False)
class EventTypes:
    """`relay.event_types`. Changes are of the tenant's own type; with `every_tenant`, of the global one."""

    http: Http

    def list(self, *, limit: int | None = None, **filters: Any) -> Iterator[EventType]:
        """The event types that the tenant sees, by name. Filter: `archived` ("true", "all")."""
        return map(_typed, items(self.http, "/v1/event-types", dict[str, Any], filters, limit))

    def create(self, name: str, *, every_tenant: bool = False, **fields: Any) -> EventType:
        """Describe a type: `description`, `schema`, `deprecated`."""
        scope = {"global": True} if every_tenant else {}
        return _shown(self.http.send("POST", "/v1/event-types", {"name": name, **scope, **fields}))

    def get(self, name: str) -> EventType:
        """One type, with its `etag`."""
        return _shown(self.http.get(f"/v1/event-types/{path_of(name)}"))

    def update(self, name: str, *, every_tenant: bool = False, etag: str | None = None, **changes: Any) -> EventType:
        """Change what is named and nothing else."""
        return self._change("PATCH", path_of(name), changes, etag, every_tenant=every_tenant)

    def archive(self, name: str, *, every_tenant: bool = False, etag: str | None = None) -> EventType:
        """No event of the type is accepted from now on."""
        return self._change("POST", f"{path_of(name)}/archive", None, etag, every_tenant=every_tenant)

    def unarchive(self, name: str, *, every_tenant: bool = False, etag: str | None = None) -> EventType:
        """Accept events of the type again."""
        return self._change("POST", f"{path_of(name)}/unarchive", None, etag, every_tenant=every_tenant)

    def _change(self, method: str, path: str, body: Any, etag: str | None, *, every_tenant: bool) -> EventType:
        where = {"global": True} if every_tenant else None
        return _shown(self.http.send(method, f"/v1/event-types/{path}", body, etag, where))


def _shown(answer: Response) -> EventType:
    return replace(_typed(answer.read(dict[str, Any])), etag=answer.headers.get("ETag"))


def _typed(said: dict[str, Any]) -> EventType:
    """One member has a name that Python keeps for itself."""
    return converted({**said, "every_tenant": said.get("global", False)}, EventType)


@dataclass(frozen=True, repr=False)
class Keys:
    """`relay.keys`."""

    http: Http

    def list(self, *, limit: int | None = None) -> Iterator[Key]:
        """The keys that this key may see, newest first; never their text."""
        return items(self.http, "/v1/keys", Key, {}, limit)

    def create(
        self, name: str, scopes: Sequence[str], *, operator: bool = False, expires_at: datetime | None = None
    ) -> Key:
        """Make a key for the tenant, or an operator's. Its text is in `key` of the answer, this once."""
        body = {"name": name, "scopes": list(scopes), "operator": operator, "expires_at": expires_at}
        return self.http.send("POST", "/v1/keys", body).read(Key)

    def get(self, key_id: str) -> Key:
        """One key, without its text."""
        return self.http.get(f"/v1/keys/{path_of(key_id)}").read(Key)

    def rotate(self, key_id: str, *, overlap_hours: int | None = None) -> Key:
        """Make another key in this one's place; for so long both are good. Its text is in `key` of the answer, this
        once."""
        body = None if overlap_hours is None else {"overlap_hours": overlap_hours}
        return self.http.send("POST", f"/v1/keys/{path_of(key_id)}/rotate", body).read(Key)

    def revoke(self, key_id: str) -> None:
        """End it for good."""
        self.http.send("DELETE", f"/v1/keys/{path_of(key_id)}")


@dataclass(frozen=True, repr=False)
class Tenants:
    """`relay.tenants`: for an operator's key; a tenant's own key sees its tenant alone."""

    http: Http

    def list(self, *, limit: int | None = None) -> Iterator[Tenant]:
        """All tenants."""
        return items(self.http, "/v1/tenants", Tenant, {}, limit)

    def create(self, name: str, **fields: Any) -> Tenant:
        """Make a tenant; its `id` is made unless it is given."""
        return _tenant(self.http.send("POST", "/v1/tenants", {"name": name, **fields}))

    def get(self, tenant_id: str) -> Tenant:
        """One tenant, with its `etag`."""
        return _tenant(self.http.get(f"/v1/tenants/{path_of(tenant_id)}"))

    def update(self, tenant_id: str, *, etag: str | None = None, **changes: Any) -> Tenant:
        """Change what is named and nothing else."""
        return _tenant(self.http.send("PATCH", f"/v1/tenants/{path_of(tenant_id)}", changes, etag))

    def expunge(
        self, tenant_id: str, *, confirm: str, reason: str, before: datetime | None = None, dry_run: bool = False
    ) -> Job:
        """Remove the content of the tenant's events for good: a job. `confirm` is the tenant's id once more."""
        body = {"confirm": confirm, "reason": reason, "before": before, "dry_run": dry_run}
        return self.http.send("POST", f"/v1/tenants/{path_of(tenant_id)}/expunge", body).read(Job)


def _tenant(answer: Response) -> Tenant:
    return replace(answer.read(Tenant), etag=answer.headers.get("ETag"))
