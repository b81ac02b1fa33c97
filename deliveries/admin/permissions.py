"""Who may do what in the admin, beyond reading."""

from __future__ import annotations

from django.http import HttpRequest

RESOLVE = ("ledger.resolve_operation", "ledger.change_operation")
"""Any one of these lets a person settle an unknown operation: it is the only change that one may be given."""


def may_resolve(request: HttpRequest) -> bool:
    """Whether this person may settle unknown operations."""
    return any(request.user.has_perm(permission) for permission in RESOLVE)
