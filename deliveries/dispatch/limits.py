"""How much one dispatcher takes on, and for how long one send may last."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from deliveries.timing import longest_deadline_ms


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one dispatcher takes on. Counts are deliveries; times are milliseconds.

    `in_flight` is how much is claimed ahead of receivers that answer at once; what is out for longer does not count, so
    that slow receivers do not hold up the others. `held` bounds all of it, as far as the transport takes on so much.
    """

    batch: int = 200
    in_flight: int = 256
    held: int = 2_048
    ttl_ms: int = 30_000
    heartbeat_ms: int = 5_000
    timeout_ms: int = 15_000

    @classmethod
    def from_settings(cls) -> Limits:
        """The limits of this deployment."""
        return cls(
            ttl_ms=settings.RELAY_LEASE_TTL_MS,
            heartbeat_ms=settings.RELAY_HEARTBEAT_MS,
            timeout_ms=settings.RELAY_HTTP_TIMEOUT_MS,
        )

    def deadline_ms(self, wanted: int | None) -> int:
        """The total deadline of a request whose endpoint asks for `wanted`: never longer than a lease can carry.

        An endpoint may have been saved when leases were longer. It is sent with less patience, rather than never.
        """
        return min(wanted or self.timeout_ms, longest_deadline_ms(self.ttl_ms, self.heartbeat_ms))
