"""A dispatcher's hands at an endpoint with limits: claim, answer, tell; and time that passes by planting."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django.db import connection

from deliveries.dispatch import claiming, settling
from deliveries.dispatch.attempts import Report
from deliveries.dispatch.claiming import Delivery, Walk
from deliveries.health import Watch
from deliveries.models import Endpoint, EndpointState
from deliveries.outcomes import ANSWERED, NOT_SENT, UNKNOWN
from deliveries.transport.base import Evidence, Headers, Outcome
from ledger.outcome import Applied
from tests.support import deliveries, ledger_rows
from tests.support.database import unguarded
from tests.support.deliveries import Watched, events, submitted_in_silence
from tests.support.ledger_rows import OWNER, TTL_MS

URL = "http://127.0.0.1:9/"


def endpoint(**changes: Any) -> Endpoint:
    """An endpoint of a new tenant, tried again after a long time."""
    return deliveries.endpoint(deliveries.tenant(), URL, **{"retry_schedule": [1000] * 10, **changes})[0]


def accepted(to: Endpoint, count: int = 1) -> list[Watched]:
    return submitted_in_silence(events(to.tenant_id, count))


def claimed(batch: int = 100, owner: str = OWNER) -> list[Delivery]:
    """What a dispatcher gets of everything that is due."""
    found, _ = claiming.claim(Walk(), owner=owner, batch=batch, ttl_ms=TTL_MS)
    for delivery in found:
        delivery.sent_at = delivery.claimed_at
    return found


def settle(
    found: list[Delivery],
    status: int | None = 200,
    headers: Headers = (),
    *,
    watch: Watch,
    owner: str = OWNER,
    written: bool = True,
) -> None:
    """The receiver answered so, now; 0: proven not sent; None: nobody knows. The news is written down at once."""
    now = time.monotonic()
    verdict = UNKNOWN if status is None else ANSWERED if status else NOT_SENT
    error = "" if status else "No connection."
    reports = [
        Report(one, Outcome(one.key, verdict, status or None, headers, b"", error, Evidence(sends=1)), now)
        for one in found
    ]
    answers = settling.settle(reports, owner=owner, watch=watch)
    assert all(isinstance(answer, Applied) for answer in answers.values()), answers
    if written:
        watch.write(at_once=True)


def state(of: Endpoint) -> EndpointState:
    return EndpointState.objects.get(endpoint_id=of.endpoint_id)


def change(of: Endpoint, **columns: Any) -> None:
    """Plant a state."""
    ledger_rows.change("deliveries_endpoint_state", {"endpoint_id": of.endpoint_id}, **columns)


def change_operation(one: Watched, **columns: Any) -> None:
    """Plant another state of an operation, and of its pointer."""
    for table in ("ledger_operation", "ledger_dispatch"):
        ledger_rows.change(table, {"operation_key": one.operation_key}, **columns)


def ago(seconds: float) -> Any:
    """To plant: a moment of the past."""
    return ledger_rows.from_now(round(-1000 * seconds))


def seconds_until(moment: datetime | None) -> float:
    """On the database's clock; negative for the past."""
    assert moment is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s - clock_timestamp())::float8", [moment])
        ((seconds,),) = cursor.fetchall()
    return float(seconds)


def make_due() -> None:
    """The time of every next attempt has come."""
    with unguarded(), connection.cursor() as cursor:
        for table in ("ledger_operation", "ledger_dispatch"):
            cursor.execute(
                f"UPDATE {table} SET due_at = clock_timestamp() - interval '1 second' WHERE due_at IS NOT NULL"  # noqa: S608 - our own names
            )
