"""What the runtime role may do with the tables of deliveries, beside reading them.

Events, attempts, acknowledgements and jobs are written by the functions of named statements alone. The
others are configuration, written through the ORM, which names every column of a row that it inserts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.grants import EVERY, Rights

TABLES: Mapping[str, Rights] = {
    "deliveries_tenant": Rights(insert=EVERY, update=("name", "unknown_types", "updated_at")),
    "deliveries_api_key": Rights(
        insert=EVERY, update=("expires_at", "revoked_at", "last_used_at"), secret=("secret_hash",)
    ),
    "deliveries_endpoint": Rights(
        insert=EVERY,
        update=(
            "url", "description", "types", "headers", "enabled", "disabled_reason", "disabled_by", "deleted_at",
            "idempotent",
            "window_hours", "query_url", "retry_schedule", "retry_jitter", "retry_max_age_hours", "in_flight",
            "timeout_ms", "blocked_until", "updated_at", "filter", "secret_headers", "secret_headers_sealed", "auth",
            "auth_sealed", "client_certificate", "client_key_sealed", "ca_certificates", "envelope", "secret_sealed",
            "former_secrets", "conflict_accepts", "ordered", "order_patience", "rate_per_second", "rate_burst",
            "connect_timeout_ms", "receives", "must_verify", "verified_at",
        ),
        secret=(
            "secret_sealed", "former_secrets", "headers", "secret_headers_sealed", "auth_sealed", "client_key_sealed",
        ),
    ),
    "deliveries_event_type": Rights(
        insert=EVERY, update=("description", "schema", "deprecated", "archived_at", "updated_at")
    ),
    **dict.fromkeys(
        (
            "deliveries_event", "deliveries_attempt", "deliveries_acknowledgement", "deliveries_endpoint_state",
            "deliveries_job",
        ),
        Rights(),
    ),
}  # fmt: skip
