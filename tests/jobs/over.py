"""Deliveries that are over, in quantity, by the statements that end them in earnest."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import connection

from deliveries import jobs
from deliveries.models import JobKind
from deliveries.recovering import Filter
from ledger.managers import operation as operations
from ledger.managers.operation import Proof, Settlement
from ledger.models import Operation
from ledger.statements import in_transaction
from tests.support.deliveries import events, submitted_in_silence

OWNER = "ending/1/aaaaaa"
TTL_MS = 60_000
AT_ONCE = 500


def ended(tenant_id: str, count: int, proof: Proof = Proof.FINAL, *, type: str = "invoice.paid") -> list[int]:  # noqa: A002
    """The keys of the operations of `count` new events, each of which came to this. Nobody is woken."""
    keys: list[int] = []
    for start in range(0, count, AT_ONCE):
        watched = submitted_in_silence(events(tenant_id, min(AT_ONCE, count - start), type=type))
        some = [one.operation_key for one in watched]
        in_transaction(lambda some=some: settle(some, proof))  # type: ignore[misc]
        keys += some
    return keys


def settle(keys: list[int], proof: Proof) -> None:
    """Claim and settle them, as a dispatcher would."""
    claimed, refused = operations.claim(keys, owner=OWNER, ttl_ms=TTL_MS)
    assert not refused, refused
    settlements = [Settlement(one, proof, None, None, {"status": 400}) for one in claimed]
    answers = operations.settle(settlements, owner=OWNER)
    assert len(answers) == len(keys)
    statuses = set(Operation.objects.filter(operation_key__in=keys).values_list("status", flat=True))
    assert len(statuses) == 1, statuses


def recovery(
    tenant_id: str, *, dry_run: bool = False, per_second: int | None = None, statuses: tuple[str, ...] = ("failed",)
) -> uuid.UUID:
    """A job that recovers what came to this in the last hour. Nobody is woken."""
    now = jobs.now()
    wanted = Filter(now - timedelta(hours=1), now, (), statuses, None)
    return jobs.create(
        tenant_id, JobKind.RECOVER, wanted.as_json(), actor="ann", dry_run=dry_run, per_second=per_second
    ).job_id


def runs_of(tenant_id: str) -> dict[uuid.UUID, int]:
    """How many runs each delivery has had."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT task.task_id, count(*) FROM ledger_task AS task JOIN ledger_run AS run USING (task_id)"
            " WHERE task.tenant_id = %s GROUP BY task.task_id",
            [tenant_id],
        )
        return dict(cursor.fetchall())
