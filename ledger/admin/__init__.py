"""Admin pages of the ledger itself: leases, takeovers, fenced writes, resolutions. All of them are read-only."""

from ledger.admin import leases, records, resolutions

__all__ = ("leases", "records", "resolutions")
