"""The first user and key, and what is printed of them: made-up secrets once, given ones never."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from django.contrib.auth import authenticate as sign_in

from deliveries.keys import authenticate, forget
from relay import banner, bootstrap

ADDRESS = "http://127.0.0.1:8000"
KEY, PASSWORD = "given-by-the-environment-0123456789", "given-password-0123456789"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No key is remembered from a test whose rows are gone."""
    forget()
    yield
    forget()


def bearer(text: str, **environ: str) -> str:
    """The Authorization header that the printed curl line would send."""
    (line,) = re.findall(r"^  curl (.*)$", text, re.MULTILINE)
    environ = {**os.environ, **environ}
    done = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], env=environ, capture_output=True, text=True)
    (header,) = [word for word in done.stdout.splitlines() if word.startswith("Authorization: ")]
    return header


@pytest.mark.django_db
def test_what_is_made_up_is_shown_once() -> None:
    made = bootstrap.ensure(None, None)
    text = banner.text(ADDRESS, made)
    assert made.key is not None
    assert made.password is not None
    assert authenticate(made.key) is not None
    assert f"{made.key}   (shown this once)" in text
    assert f"password {made.password}   (shown this once)" in text
    assert bearer(text) == f"Authorization: Bearer {made.key}"

    again = banner.text(ADDRESS, bootstrap.ensure(None, None))
    assert made.key not in again
    assert made.password not in again
    assert "createkey" in again
    assert "changepassword" in again


@pytest.mark.django_db
def test_what_the_environment_gives_works_and_is_never_shown() -> None:
    first, second = (banner.text(ADDRESS, bootstrap.ensure(PASSWORD, KEY)) for _ in range(2))
    assert authenticate(KEY) is not None
    assert sign_in(username=bootstrap.USER, password=PASSWORD) is not None
    assert "the one in RELAY_BOOTSTRAP_PASSWORD" in first
    assert "password as before" in second  # It may have been changed since.
    for text in (first, second):
        assert KEY not in text
        assert PASSWORD not in text
        assert "shown this once" not in text
        assert "the one in RELAY_BOOTSTRAP_KEY" in text
        assert bearer(text, RELAY_BOOTSTRAP_KEY=KEY) == f"Authorization: Bearer {KEY}"


@pytest.mark.django_db
def test_a_given_key_that_does_not_work_is_not_offered() -> None:
    bootstrap.ensure(None, None)
    text = banner.text(ADDRESS, bootstrap.ensure(None, KEY))
    assert "RELAY_BOOTSTRAP_KEY" not in text
    assert "createkey" in text
