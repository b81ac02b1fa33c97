"""The durations that the lease, the send and the settling share."""

from __future__ import annotations

SETTLE_BUDGET_MS = 5_000
"""How long a worker may take to write down an answer that arrived at the very end of its deadline."""
