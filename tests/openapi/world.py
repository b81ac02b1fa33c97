"""A database in which the ids of the document's examples exist, so that the examples work as they stand."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import mock

from django.db import connection

from deliveries import ids, keys
from deliveries.api import schemas
from deliveries.models import Endpoint
from ledger.managers.operation import Proof
from ledger.models import Task
from tests.api import rows
from tests.api.rows import Caller
from tests.receiver import Answer, Receiver
from tests.support.database import unguarded

EXAMPLE = uuid.UUID(schemas.RUN)
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
MADE_BY_THE_DATABASE = {
    "task_id": ("ledger_task", "ledger_run"),
    "active_run_id": ("ledger_task",),
    "run_id": ("ledger_run", "ledger_lease", "ledger_operation", "ledger_dispatch"),
}


def delivery(by: Caller, status: str = "pending", **endpoint: Any) -> None:
    """The event, endpoint, delivery and operation of the examples: `pending`, `unknown`, `failed` or `delivered`."""
    with mock.patch.object(ids, "time_ordered", return_value=EXAMPLE):
        rows.endpoint(by, **{"secret": SECRET, **endpoint})
        rows.event(by)
    task = Task.objects.get(event_id=EXAMPLE)
    was = {"task_id": task.task_id, "active_run_id": task.active_run_id, "run_id": task.active_run_id}
    with unguarded(), connection.cursor() as cursor:
        for column, tables in MADE_BY_THE_DATABASE.items():
            for table in tables:
                cursor.execute(f"UPDATE {table} SET {column} = %s WHERE {column} = %s", [EXAMPLE, was[column]])  # noqa: S608 - our own names
    proof = {"unknown": Proof.AMBIGUOUS, "failed": Proof.FINAL, "delivered": Proof.ACCEPTED}.get(status)
    if proof is not None:
        rows.settle(rows.claim(schemas.OPERATION), proof)


def job(by: Caller) -> None:
    """The job of the examples, of which no step was made yet."""
    delivery(by, "failed")
    with mock.patch.object(ids, "time_ordered", return_value=EXAMPLE):
        made = by.post(f"/v1/endpoints/{schemas.ENDPOINT}/recover", {"since": "2026-01-31T09:30:00Z"})
    assert made.json()["id"] == schemas.JOB, made.content


def key(by: Caller) -> None:
    """The key of the examples: a tenant's."""
    row, _ = keys.new_key("billing", ["read"], "default")
    with unguarded(), connection.cursor() as cursor:
        cursor.execute("UPDATE deliveries_api_key SET key_id = %s WHERE key_id = %s", [EXAMPLE, row.key_id])


def event_type(by: Caller, name: str = "invoice.paid") -> None:
    """The event type of the examples."""
    made = by.post("/v1/event-types", {"name": name})
    assert made.status_code == 201, made.content


def challenged(by: Caller, receiver: Receiver) -> None:
    """The endpoint of the examples, whose URL says a challenge back."""
    receiver.answer = lambda received: Answer(body=received.body)
    delivery(by, url=receiver.url)
    Endpoint.objects.update(must_verify=True, enabled=False)
