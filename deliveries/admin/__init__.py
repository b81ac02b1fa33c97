"""Admin pages of webhooks on top of the ledger: traffic, operations, the unknown ones, endpoints, tenants, keys."""

from deliveries.admin import endpoints, events, keys, operations, tasks, tenants, unknown

__all__ = ("endpoints", "events", "keys", "operations", "tasks", "tenants", "unknown")
