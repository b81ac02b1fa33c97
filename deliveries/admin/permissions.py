"""Who may do what in the admin, beyond reading."""

from __future__ import annotations

from django.http import HttpRequest

RESOLVE = "ledger.resolve_operation"
"""Lets a person settle an unknown operation: the only change that anybody may make to one."""


def may_resolve(request: HttpRequest) -> bool:
    """Whether this person may settle unknown operations."""
    return request.user.has_perm(RESOLVE)
