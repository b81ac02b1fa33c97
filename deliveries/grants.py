"""What the runtime role may do with the tables of deliveries, beside reading them.

Events, attempts and acknowledgements are records: they are written by the functions of named statements alone. The
others are configuration, written through the ORM, which names every column of a row that it inserts.
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
            "timeout_ms", "blocked_until", "updated_at", "filter", "secret_headers", "secret_headers_sealed", "auth",
            "auth_sealed", "client_certificate", "client_key_sealed", "ca_certificates", "envelope", "secret_sealed",
            "former_secrets", "conflict_accepts", "ordered", "order_patience", "rate_per_second", "rate_burst",
            "connect_timeout_ms",
        ),
        secret=(
            "secret_sealed", "former_secrets", "headers", "secret_headers_sealed", "auth_sealed", "client_key_sealed",
        ),
    ),
    **dict.fromkeys(
        ("deliveries_event", "deliveries_attempt", "deliveries_acknowledgement", "deliveries_endpoint_state"), Rights()
    ),
}  # fmt: skip
