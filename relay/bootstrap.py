"""What the first start of an empty database needs: a superuser for the admin and a key for the API.

Both are stored hashed. What is made up is shown once; what the environment gives is never shown.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.db import transaction

from deliveries.keys import BadKey, authenticate, new_key
from deliveries.models import ApiKey, Scope
from relay.env import BadVariable

USER = "admin"
KEY_NAME = "first operator key"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What this start made up, to be shown once, and what it took from the environment. No repr: these are secrets.

    None and not given: it exists since an earlier start and is not known any more.
    """

    password: str | None
    key: str | None
    password_given: bool
    key_given: bool


def ensure(password: str | None, key: str | None) -> Credentials:
    """Make the superuser and the operator key when there is none of its kind. Raises `BadVariable`.

    `password` and `key` are what the environment gives. A key counts as given at every start at which it works, a
    password only at the start that uses it: it may have been changed since.
    """
    with transaction.atomic():
        chosen, working = _superuser(password), _operator_key(key)
    return Credentials(
        password=None if password else chosen,
        key=None if key else working,
        password_given=bool(password and chosen),
        key_given=bool(key and working),
    )


def _superuser(password: str | None) -> str | None:
    """The password of a superuser that was made now, or None."""
    users = get_user_model()
    if users.objects.filter(is_superuser=True).exists():
        return None
    chosen = password or secrets.token_urlsafe(12)
    users.objects.create_superuser(username=USER, email="", password=chosen)
    return chosen


def _operator_key(text: str | None) -> str | None:
    """An operator's key that works: the one that was made now, or `text` when it is one already."""
    if ApiKey.objects.filter(tenant=None).exists():
        return text if text is not None and authenticate(text) is not None else None
    try:
        return new_key(KEY_NAME, Scope.values, None, text)[1]
    except BadKey as bad:
        raise BadVariable("RELAY_BOOTSTRAP_KEY", f"cannot be used: {bad}") from bad
