"""What the first start of an empty database needs: a superuser for the admin and a key for the API.

Both are made up unless the environment gives them, shown once, and stored hashed.
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
    """What may be shown at this start. None: it exists and is not known any more. No repr: these are secrets."""

    password: str | None
    key: str | None


def ensure(password: str | None, key: str | None) -> Credentials:
    """Make the superuser and the operator key when there is none of its kind. Raises `BadVariable`.

    `password` and `key` are what the environment gives. A key that is given and works is returned at every start.
    """
    with transaction.atomic():
        return Credentials(password=_superuser(password), key=_operator_key(key))


def _superuser(password: str | None) -> str | None:
    users = get_user_model()
    if users.objects.filter(is_superuser=True).exists():
        return None
    chosen = password or secrets.token_urlsafe(12)
    users.objects.create_superuser(username=USER, email="", password=chosen)
    return chosen


def _operator_key(text: str | None) -> str | None:
    if ApiKey.objects.filter(tenant=None).exists():
        return text if text is not None and authenticate(text) is not None else None
    try:
        return new_key(KEY_NAME, Scope.values, None, text)[1]
    except BadKey as bad:
        raise BadVariable("RELAY_BOOTSTRAP_KEY", f"cannot be used: {bad}") from bad
