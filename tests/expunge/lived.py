"""Events with a marker in everything that may hold content, and a search of the whole database for it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from django.db import connection
from psycopg import sql

from deliveries import acknowledgements, ids
from deliveries.acknowledgements import Said, Source
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.queries import DELIVERIES
from deliveries.transport.base import Evidence, Outcome
from ledger.managers.operation import Settled
from ledger.outcome import Applied, Rejected
from tests.api import rows
from tests.api.rows import Caller
from tests.support import ledger_rows
from tests.support.database import unguarded

OWNER = "expunging/1/aaaaaa"
TTL_MS = 30_000
MARKER = "Zanzibar-4711"
REASON = {"reason": "The customer asked for it."}


@dataclass(frozen=True, slots=True)
class _Endpoint:
    endpoint_id: uuid.UUID


def submit(by: Caller, marker: str = MARKER, **fields: object) -> str:
    """The id of a new event that has the marker wherever content may be."""
    return rows.event(
        by, data={"who": marker}, metadata={"who": marker}, headers={"X-Who": marker}, source=marker, **fields
    )


def claim() -> Delivery:
    """The one delivery that is due, in a dispatcher's hands."""
    (delivery,), _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    delivery.sent_at = time.monotonic()
    return delivery


def answered(delivery: Delivery, status: int | None = 200, marker: str = MARKER) -> Report:
    """What a dispatcher reports: an answer, and an error, which quote the marker."""
    verdict = "unknown" if status is None else "answered"
    outcome = Outcome(
        delivery.key, verdict, status, (("X-Said", marker),), f"thanks, {marker}".encode(), f"broke at {marker}",
        Evidence(sends=1, request_complete=status is not None),
    )  # fmt: skip
    return Report(delivery, outcome, time.monotonic())


def settle(delivery: Delivery, status: int | None = 200) -> Applied[Settled] | Rejected:
    """Settle as a dispatcher does."""
    return settling.settle([answered(delivery, status)], owner=OWNER)[delivery.key]


def say(delivery: Delivery, said: Said = Said.UNKNOWN, message_id: str | None = None) -> bool:
    """A word of the receiver, with the marker."""
    return acknowledgements.record(
        operation_key=delivery.key, run_id=delivery.claim.run_id, source=Source.ACKNOWLEDGEMENT, said=said,
        remote_id="42", detail=f"about {MARKER}", actor="its receiver", status=None, message_id=message_id,
    )  # fmt: skip


def last_error(endpoint_id: uuid.UUID, error: str) -> None:
    """What the state of an endpoint says was wrong last."""
    DELIVERIES["endpoint_state.born"].rows(_Endpoint, {"endpoint_ids": [endpoint_id]})
    ledger_rows.change("deliveries_endpoint_state", {"endpoint_id": endpoint_id}, last_error=error)


def places(marker: str = MARKER) -> set[str]:
    """Every `table.column` of the database, of any type, that holds the marker."""
    found = set()
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT namespace.nspname, class.relname, attribute.attname, attribute.atttypid = 'bytea'::regtype"
            " FROM pg_attribute AS attribute JOIN pg_class AS class ON class.oid = attribute.attrelid"
            " JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace"
            " WHERE class.relkind IN ('r', 'm', 'p') AND attribute.attnum > 0 AND NOT attribute.attisdropped"
            " AND namespace.nspname NOT IN ('information_schema', 'pg_catalog', 'pg_toast')"
        )
        for schema, table, column, binary in cursor.fetchall():
            holds = "position(convert_to(%s, 'UTF8') in {})" if binary else "position(%s in {}::text)"
            query = f"SELECT EXISTS (SELECT FROM {{}} WHERE {holds} > 0)"  # noqa: S608 - our own names
            cursor.execute(sql.SQL(query).format(sql.Identifier(schema, table), sql.Identifier(column)), [marker])
            if cursor.fetchone() == (True,):
                found.add(f"{table}.{column}")
    return found


def key_of(event_id: str) -> uuid.UUID:
    """The key in `evt_…`."""
    return ids.parse(ids.EVENT, event_id)
