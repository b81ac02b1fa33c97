"""From rows to endpoints as they are shown. A page adds a fixed number of queries, and opens nothing that is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deliveries import health, ids, lines, models, rotation
from deliveries.api import endpoint_schemas as schemas
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret


def items(rows: Sequence[models.Endpoint]) -> list[schemas.EndpointItem]:
    """A page of endpoints."""
    doing = health.state_of(row.endpoint_id for row in rows)
    return [schemas.EndpointItem(**_fields(row, doing.get(row.endpoint_id))) for row in rows]


def whole(row: models.Endpoint) -> dict[str, Any]:
    """The fields of one endpoint, with its line and what its receiver verifies with."""
    public_key, question_key = _public_keys(row)
    return {
        **_fields(row, health.state_of([row.endpoint_id]).get(row.endpoint_id)),
        "public_key": public_key,
        "question_key": question_key,
        "line": _line(row),
    }


def _public_keys(row: models.Endpoint) -> tuple[str | None, str | None]:
    try:
        return rotation.public_keys(row)
    except (SealBroken, BadSecret):
        return None, None  # an installation with a wrong key says so elsewhere; the endpoint can still be read


def _line(row: models.Endpoint) -> schemas.Line | None:
    line = lines.of(row.endpoint_id)
    if line is None:
        return None
    return schemas.Line(
        length=line.length,
        more=line.more,
        delivery_id=ids.render(ids.DELIVERY, line.task_id),
        status=line.status,
        attempts=line.attempts,
        since=line.since,
        hold=line.hold,
        why=line.why,
        until=line.until,
    )


def _fields(row: models.Endpoint, doing: health.Health | None) -> dict[str, Any]:
    rate = row.rate_per_second
    return {
        "id": ids.render(ids.ENDPOINT, row.endpoint_id),
        "url": row.url,
        "description": row.description,
        "types": row.types,
        "filter": row.filter,
        "headers": row.headers,
        "secret_headers": row.secret_headers,
        "auth": None if row.auth is None else schemas.Auth(**row.auth),
        "tls": schemas.Tls(
            client_certificate=row.client_certificate or None, ca_certificates=row.ca_certificates or None
        ),
        "envelope": row.envelope,
        "enabled": row.enabled,
        "disabled_reason": row.disabled_reason,
        "verification": schemas.Verification(required=row.must_verify, verified_at=row.verified_at),
        "receives": row.receives,
        "blocked_until": row.blocked_until,
        "order": schemas.Order(ordered=row.ordered, patience=row.order_patience),
        "retry": schemas.Retry(
            schedule=row.retry_schedule, jitter=row.retry_jitter, max_age_hours=row.retry_max_age_hours
        ),
        "limits": schemas.Limits(
            in_flight=row.in_flight, timeout_ms=row.timeout_ms, connect_timeout_ms=row.connect_timeout_ms
        ),
        "rate_limit": None if rate is None else schemas.RateLimit(per_second=rate, burst=row.rate_burst),
        "capability": schemas.Capability(
            idempotent=row.idempotent, window_hours=row.window_hours, query_url=row.query_url
        ),
        "conflict_accepts": row.conflict_accepts,
        "health": schemas.Health() if doing is None else schemas.Health(**asdict(doing)),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
