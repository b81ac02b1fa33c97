"""What API tests start from: callers with keys, and deliveries that have already lived through something."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection
from django.test import Client

from deliveries import keys
from deliveries.models import Scope, Tenant
from ledger.managers import operation as operations
from ledger.managers.operation import Claimed, Proof, Settlement
from ledger.models import Dispatch, Operation
from tests.support.database import unguarded

TTL_MS = 30_000
URL = "http://127.0.0.1:9/hook"
EVERY_SCOPE = tuple(Scope.values)


class Caller:
    """Somebody with a key. `body` may be bytes (sent as they are) or anything that JSON can say."""

    def __init__(self, key: str | None = None, **headers: str) -> None:
        self.client = Client()
        self.headers = dict(headers)
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, path, data, content_type="application/json", headers={**self.headers, **named}
        )

    def get(self, path: str, **headers: str) -> Any:
        return self("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self("POST", path, body, **headers)


def caller(*scopes: str, tenant: str | None = "default", **headers: str) -> Caller:
    """A caller with a new key; without scopes, with all of them. `tenant=None`: the operator."""
    _, text = keys.new_key("a test", scopes or EVERY_SCOPE, tenant)
    return Caller(text, **headers)


def tenant(name: str) -> str:
    return Tenant.objects.get_or_create(tenant_id=name, defaults={"name": name})[0].tenant_id


def endpoint(by: Caller, **fields: Any) -> str:
    """The id of a new endpoint."""
    made = by.post("/v1/endpoints", {"url": URL, **fields})
    assert made.status_code == 201, made.content
    return str(made.json()["id"])


def event(by: Caller, **fields: Any) -> str:
    """The id of a new event."""
    made = by.post("/v1/events", {"type": "invoice.paid", "data": {"n": 1}, **fields})
    assert made.status_code == 202, made.content
    return str(made.json()["id"])


def deliveries_of(by: Caller, event_id: str) -> list[dict[str, Any]]:
    """The deliveries of an event, as the API shows them."""
    found: list[dict[str, Any]] = by.get(f"/v1/events/{event_id}/deliveries").json()["items"]
    return found


def claim(operation_id: str, owner: str = "worker-1") -> Claimed:
    """Claim an operation as a dispatcher would."""
    claimed, refused = operations.claim([_key(operation_id)], owner=owner, ttl_ms=TTL_MS)
    assert not refused, refused
    return claimed[0]


def settle(
    claimed: Claimed,
    proof: Proof,
    owner: str = "worker-1",
    retry_ms: int | None = None,
    window_ms: int | None = None,
) -> None:
    """Write the outcome of a claim and its attempt, as a dispatcher would."""
    verdict, status = {Proof.AMBIGUOUS: ("unknown", None)}.get(proof, ("answered", 200))
    operations.settle([Settlement(claimed, proof, retry_ms, window_ms, {"status": status})], owner=owner)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO deliveries_attempt (operation_key, number, epoch, owner, url, started_at, ended_at, verdict,"
            " classification, http_status, response_headers, response_body, error, evidence)"
            " VALUES (%s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp(), %s, %s, %s, %s, %s, '', %s)",
            [
                claimed.operation_key, claimed.attempts, claimed.epoch, owner, URL, verdict, proof.value, status,
                json.dumps([["Server", "x"]]), b"caf\xc3\xa9 \xff", json.dumps({"request_complete": True}),
            ],
        )  # fmt: skip


def unknown(by: Caller) -> str:
    """The id of an operation whose outcome is unknown, of a new event to a new endpoint."""
    target = endpoint(by)
    (delivery,) = (one for one in deliveries_of(by, event(by)) if one["endpoint_id"] == target)
    settle(claim(delivery["operation_id"]), Proof.AMBIGUOUS)
    return str(delivery["operation_id"])


def let_lease_expire(claimed: Claimed) -> None:
    """Move the end of a claim and its lease into the past: time in the database, not a faked clock."""
    with unguarded(), connection.cursor() as cursor:
        for statement, value in (
            ("UPDATE ledger_lease SET expires_at = %s WHERE run_id = %s", claimed.run_id),
            ("UPDATE ledger_operation SET dispatch_until = %s WHERE operation_key = %s", claimed.operation_key),
            ("UPDATE ledger_dispatch SET until = %s WHERE operation_key = %s", claimed.operation_key),
        ):
            cursor.execute(statement, [claimed.dispatched_at - timedelta(minutes=1), value])


def row_counts() -> dict[str, int]:
    """How many rows every table of ours has."""
    return {
        model.__name__: model._default_manager.count()
        for name in ("ledger", "deliveries")
        for model in apps.get_app_config(name).get_models()
    }


def _key(operation_id: str) -> int:
    _, run_id, step_id, version = operation_id.split("/")
    found = Operation.objects.get(run_id=uuid.UUID(run_id), step_id=step_id, effect_version=int(version))
    assert Dispatch.objects.filter(operation_id=found.operation_key).exists()
    return int(found.operation_key)
