"""`/healthz` speaks for the process alone; `/readyz` for the primary and its migrations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client

from relay import health
from tests.support.database import unguarded

BASE_DIR = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not looked at the migrations yet."""
    monkeypatch.setattr(health, "_migrated", False)


def test_the_process_is_healthy_without_looking_at_the_database(client: Client) -> None:
    # Without the mark for the database, pytest-django refuses every query.
    assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.django_db
def test_a_migrated_primary_is_ready(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


@pytest.mark.django_db
def test_a_database_that_refuses_writes_is_not_ready(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL default_transaction_read_only = on")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_writable")


@pytest.mark.django_db
def test_a_database_that_lacks_a_migration_is_not_ready(client: Client) -> None:
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'relay'")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_migrated")


def test_a_database_that_is_away_is_not_ready_and_the_process_still_healthy(tmp_path: Path) -> None:
    program = """
import django
django.setup()
from django.test import Client
client = Client(headers={"host": "localhost"})
print(client.get("/healthz").status_code, client.get("/readyz").status_code, client.get("/readyz").json()["code"])
"""
    away = {"DATABASE_URL": f"postgresql:///relay?host={tmp_path}", "DJANGO_SETTINGS_MODULE": "relay.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=BASE_DIR,
        env={**os.environ, **away},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "200 503 database_away\n", done.stderr


@pytest.mark.django_db
def test_the_front_page_leads_to_the_admin(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
