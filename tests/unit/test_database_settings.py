"""What every connection to PostgreSQL is given: parameters, and a bound on idle transactions."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.utils import Error
from pytest_django.fixtures import Settings

from relay import broker
from relay.database import NOTICE_SILENCE, settings_for
from relay.env import load
from tests.support.waiting import wait_until

KEY = {"RELAY_SECRET_KEY": "k" * 32}


def options(url: str) -> dict[str, Any]:
    given: dict[str, Any] = settings_for(load({**KEY, "DATABASE_URL": url}).database)["OPTIONS"]
    return given


@pytest.mark.parametrize("url", ["postgresql://relay@db.example/relay", "postgresql://10.0.0.5/relay"])
def test_a_primary_that_goes_silent_is_noticed_over_tcp(url: str) -> None:
    assert options(url) == {"application_name": "relay", **NOTICE_SILENCE}


def test_what_the_url_says_is_not_overridden() -> None:
    given = options("postgresql://db.example/relay?connect_timeout=30&keepalives_idle=60&sslmode=require")
    assert given == {
        "application_name": "relay",
        **NOTICE_SILENCE,
        "connect_timeout": "30",
        "keepalives_idle": "60",
        "sslmode": "require",
    }


def test_a_socket_of_this_machine_needs_no_keepalives() -> None:
    assert options("postgresql:///relay?host=/run/postgresql") == {"application_name": "relay"}


@pytest.mark.django_db
def test_the_brokers_connection_notices_silence_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections[DEFAULT_DB_ALIAS].settings_dict, "OPTIONS", dict(NOTICE_SILENCE))
    made = broker.make("").storage._create_connection()
    try:
        told = made.info.get_parameters()
    finally:
        made.close()
    assert {name: told.get(name) for name in NOTICE_SILENCE} == {
        name: str(value) for name, value in NOTICE_SILENCE.items()
    }
    assert told["application_name"] == "relay-huey"


@pytest.mark.django_db
def test_every_new_connection_bounds_its_idle_transactions_by_the_lease(settings: Settings) -> None:
    for milliseconds in (12_345, 54_321):
        settings.RELAY_LEASE_TTL_MS = milliseconds
        new = connection.copy()
        try:
            with new.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                assert cursor.fetchone() == (f"{milliseconds}ms",)
        finally:
            new.close()


@pytest.mark.django_db
def test_who_stands_still_inside_a_transaction_keeps_its_locks_no_longer_than_a_lease(
    settings: Settings,
) -> None:
    settings.RELAY_LEASE_TTL_MS = 1_000
    standing = connection.copy()
    standing.set_autocommit(False)
    with standing.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(7, 7)")
    assert not lock_is_free()
    wait_until(lock_is_free, 10, "the lock is free")
    with pytest.raises(Error), standing.cursor() as cursor:
        cursor.execute("SELECT 1")
    standing.close()


def lock_is_free() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(7, 7)")
        row = cursor.fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.parametrize(
    "url, meant",
    [
        ("redis://r:6379/0", "redis://r:6379/0?socket_timeout=5&socket_connect_timeout=5"),
        ("rediss://r?socket_timeout=9&db=2", "rediss://r?socket_timeout=9&socket_connect_timeout=5&db=2"),
    ],
)
def test_a_redis_that_does_not_answer_is_given_up_after_seconds(url: str, meant: str) -> None:
    assert broker.with_timeouts(url) == meant
    assert float(broker.REDIS_TIMEOUTS["socket_timeout"]) > broker.READ_TIMEOUT


def test_huey_takes_the_timeouts_from_the_url() -> None:
    pytest.importorskip("redis")
    told = broker.make("redis://127.0.0.1:1/0").storage.pool.connection_kwargs
    assert (told["socket_timeout"], told["socket_connect_timeout"]) == (5, 5)
