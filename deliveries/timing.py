"""The durations that the lease, the send and the settling share."""

from __future__ import annotations

SETTLE_BUDGET_MS = 5_000
"""How long a worker may take to write down an answer that arrived at the very end of its deadline."""


def longest_deadline_ms(lease_ttl_ms: int, heartbeat_ms: int) -> int:
    """The longest total deadline of one request that a lease can carry, with time to settle before it expires.

    A heartbeat is subtracted, because a lease that is held was renewed up to one heartbeat ago.
    """
    return lease_ttl_ms - heartbeat_ms - SETTLE_BUDGET_MS
