"""People who look at the admin, and a count of the queries that a page costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


def sign_in(name: str, permissions: tuple[str, ...], *, superuser: bool = False) -> Client:
    """A signed-in person with exactly these permissions (`app.codename`)."""
    user = User.objects.create_user(name, is_staff=True, is_superuser=superuser)
    for permission in permissions:
        app, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def administrator(db: None) -> Client:
    """May do everything."""
    return sign_in("root", (), superuser=True)


@pytest.fixture
def person(db: None) -> Callable[..., Client]:
    """`person("ledger.view_operation", …)`: somebody with these permissions."""
    made = 0

    def make(*permissions: str) -> Client:
        nonlocal made
        made += 1
        return sign_in(f"person-{made}", permissions)

    return make
