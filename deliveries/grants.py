"""What the runtime role may do with the tables of deliveries, beside reading them.

Events, attempts and acknowledgements are written by named statements, and a test compares. The others are written
through the ORM, which names every column of a row that it inserts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.grants import EVERY, Rights

TABLES: Mapping[str, Rights] = {
    "deliveries_tenant": Rights(insert=EVERY),
    "deliveries_api_key": Rights(insert=EVERY, update=("revoked_at", "last_used_at"), secret=("secret_hash",)),
    "deliveries_endpoint": Rights(
        insert=EVERY,
        update=(
            "url", "description", "types", "headers", "enabled", "disabled_reason", "deleted_at", "idempotent",
            "window_hours", "query_url", "retry_schedule", "retry_jitter", "retry_max_age_hours", "in_flight",
            "timeout_ms", "blocked_until", "updated_at",
        ),
        secret=("secret_sealed", "headers"),
    ),
    "deliveries_event": Rights(
        insert=(
            "event_id", "tenant_id", "type", "payload", "digest", "source", "metadata", "deliver_at",
            "idempotency_key", "deliveries",
        )
    ),
    "deliveries_attempt": Rights(
        insert=(
            "operation_key", "number", "epoch", "owner", "url", "started_at", "ended_at", "verdict", "classification",
            "http_status", "response_headers", "response_body", "error", "evidence", "late",
        ),
        update=(
            "started_at", "ended_at", "verdict", "classification", "http_status", "response_headers", "response_body",
            "error", "evidence", "late",
        ),
    ),
    "deliveries_acknowledgement": Rights(
        insert=(
            "operation_key", "run_id", "source", "said", "message_id", "covers", "remote_id", "detail", "actor",
            "http_status",
        )
    ),
}  # fmt: skip
