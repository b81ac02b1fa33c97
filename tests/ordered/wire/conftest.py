"""A database whose rows are committed, as for the other tests with processes of their own."""

from __future__ import annotations

from tests.processes.conftest import committed_database, db, tenant

__all__ = ["committed_database", "db", "tenant"]
