"""API keys: how they are made, kept and judged."""

from __future__ import annotations

import hashlib
import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from deliveries import keys
from deliveries.keys import KeyRefusal
from deliveries.models import ApiKey
from ledger.models import Clock
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db


def made(**changes: object) -> tuple[ApiKey, str]:
    row, text = keys.new_key("a test", ["read"], None)
    if changes:
        with unguarded():
            ApiKey.objects.filter(pk=row.pk).update(**changes)
    return row, text


def test_a_key_has_a_public_part_and_is_kept_only_as_a_hash() -> None:
    row, text = made()
    assert re.fullmatch(r"rk_[a-z0-9]{10}_[A-Za-z0-9_-]{43}", text)
    assert row.lookup == text[3:13]
    assert bytes(row.secret_hash) == hashlib.sha256(text.encode()).digest()
    stored = ApiKey.objects.values().get(pk=row.pk)
    assert text[14:] not in repr(stored)


def test_a_key_is_found_by_its_text_and_by_no_other() -> None:
    row, text = made()
    found = keys.authenticate(text)
    assert found is not None
    assert found.pk == row.pk
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert keys.judge(wrong) is KeyRefusal.UNKNOWN
    for strange in ("", "rk_", "x" * 300, "rk_\x00", "clé-clé-clé-clé-clé"):
        assert keys.authenticate(strange) is None


def test_an_expired_key_is_refused() -> None:
    _, text = made(expires_at=Clock() - timedelta(seconds=1))
    assert keys.judge(text) is KeyRefusal.EXPIRED


def test_a_key_is_never_remembered_beyond_its_expiry() -> None:
    _, text = made(expires_at=Clock() + timedelta(milliseconds=300))
    assert keys.authenticate(text) is not None
    deadline = time.monotonic() + 1.5  # Sooner than the two seconds for which a key without expiry is remembered.
    while keys.authenticate(text) is not None:
        assert time.monotonic() < deadline
    assert keys.judge(text) is KeyRefusal.EXPIRED


def test_a_revoked_key_is_refused_at_once_here_and_soon_by_every_process() -> None:
    row, text = made()
    assert keys.authenticate(text) is not None
    assert keys.revoke(row.pk)
    assert keys.judge(text) is KeyRefusal.REVOKED
    assert not keys.revoke(row.pk)

    row, text = made()
    assert keys.authenticate(text) is not None
    ApiKey.objects.filter(pk=row.pk).update(revoked_at=Clock())  # By another process: this one is not told.
    deadline = time.monotonic() + keys.REMEMBERED_FOR + 1
    while keys.authenticate(text) is not None:
        assert time.monotonic() < deadline
    assert keys.judge(text) is KeyRefusal.REVOKED


def test_a_remembered_key_costs_no_query(django_assert_num_queries: object) -> None:
    _, text = made()
    keys.authenticate(text)
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert keys.authenticate(text) is not None


def test_use_is_noted_at_most_once_a_minute() -> None:
    row, text = made()
    keys.authenticate(text)
    first = ApiKey.objects.get(pk=row.pk).last_used_at
    assert first is not None
    keys.forget()
    keys.authenticate(text)
    assert ApiKey.objects.get(pk=row.pk).last_used_at == first
    ApiKey.objects.filter(pk=row.pk).update(last_used_at=Clock() - timedelta(minutes=2))
    keys.forget()
    keys.authenticate(text)
    renewed = ApiKey.objects.get(pk=row.pk).last_used_at
    assert renewed is not None
    assert renewed > first


def test_a_key_that_somebody_chose_works() -> None:
    _, text = keys.new_key("first", ["operate"], None, text="correct-horse-battery-staple")
    found = keys.authenticate(text)
    assert found is not None
    assert "horse" not in found.lookup


@pytest.mark.parametrize(
    ("scopes", "text"),
    [
        (["read", "fly"], None),
        ([], None),
        (["read"], "short"),
        (["read"], "with spaces in it, long"),
        (["read"], "é" * 20),
    ],
)
def test_a_bad_key_is_not_made(scopes: list[str], text: str | None) -> None:
    with pytest.raises(keys.BadKey):
        keys.new_key("bad", scopes, None, text=text)
    assert not ApiKey.objects.filter(name="bad").exists()


def test_a_key_can_be_made_with_an_expiry() -> None:
    row, _ = keys.new_key("short-lived", ["read"], None, expires_at=datetime(2099, 1, 1, tzinfo=UTC))
    assert row.expires_at == datetime(2099, 1, 1, tzinfo=UTC)
