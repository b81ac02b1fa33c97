"""Ordered endpoints with everything going wrong at once: what arrives for the first time arrives in order.

Producers submit at the same time, the receiver fails at random, three dispatchers take the line from each other and are
killed. `RELAY_SOAK=1` makes it long.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import uuid
from datetime import datetime
from functools import partial

from psycopg.conninfo import make_conninfo

from deliveries.audit import WALKS
from ledger import audit
from ledger.models import Dispatch, Operation, Resolution
from tests.api import rows
from tests.history import journal
from tests.ordered.wire import lines_of
from tests.ordered.wire.lines_of import Lines, Place
from tests.ordered.wire.moody import Moody
from tests.ordered.wire.producers import Producer, Submission
from tests.support import database, deliveries
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.programs import LEASE_TTL_MS
from tests.support.waiting import wait_until

SOAK = os.environ.get("RELAY_SOAK") == "1"
EVENTS = 5_000 if SOAK else 160
"""Of all producers together. Every one goes to both ordered endpoints."""
KILLS = 25 if SOAK else 2
PRODUCERS = 4
DONE_S = 1_500.0 if SOAK else 100.0
SEED = 7


def kill_a_holder(dice: random.Random) -> bool:
    """SIGKILL to a worker that has something in flight; whether there was one."""
    keys = list(Dispatch.objects.filter(until__isnull=False).values_list("operation_id", flat=True)[:10])
    owners = Operation.objects.filter(operation_key__in=keys, dispatch_owner__isnull=False)
    found = sorted({owner for owner in owners.values_list("dispatch_owner", flat=True) if owner})
    if not found:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid_of(dice.choice(found)), signal.SIGKILL)
        return True
    return False


def arrived(receiver: Moody, count: int) -> bool:
    return len(receiver.arrived) >= count


def first_arrivals(receiver: Moody, path: str) -> list[str]:
    """The operations in the order in which they arrived for the first time."""
    return list(dict.fromkeys(one.operation_id for one in receiver.arrived if one.path == path))


def check_the_order(line: list[Place], receiver: Moody, path: str) -> None:
    stayed = [place.operation_id for place in line if not place.left]
    arrived = [operation_id for operation_id in first_arrivals(receiver, path) if operation_id in set(stayed)]
    assert arrived == stayed, "first arrivals are not in the order of acceptance"


def check_nothing_went_past(lines: Lines, line: list[Place], receiver: Moody, path: str) -> None:
    """No claim while an earlier one held the line; no arrival, first or again, before all earlier ones were over."""
    assert lines.overtaken == []
    at = {place.operation_id: number for number, place in enumerate(line)}
    over_by: list[datetime | None] = []
    latest: datetime | None = None
    for place in line:
        over_by.append(latest)
        assert place.over_at is not None, f"{place.operation_id} never ended"
        latest = place.over_at if latest is None else max(latest, place.over_at)
    for one in receiver.arrived:
        if one.path == path and not line[at[one.operation_id]].left:
            before = over_by[at[one.operation_id]]
            assert before is None or before <= one.at, f"{one} arrived before all that was accepted before it was over"


def check_acceptance(line: list[Place], submissions: list[Submission]) -> None:
    """What was answered before something else was asked for stands before it, and a batch in its own order."""
    at: dict[uuid.UUID, int] = {place.event_id: number for number, place in enumerate(line)}
    for submission in submissions:
        numbers = [at[event_id] for event_id in submission.event_ids]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a batch stands together"
    by_answer = sorted(submissions, key=lambda one: one.answered_at)
    by_question = sorted(submissions, key=lambda one: one.asked_at)
    highest, answered = -1, iter(by_answer)
    following = next(answered, None)
    for submission in by_question:
        while following is not None and following.answered_at < submission.asked_at:
            highest = max(highest, *(at[event_id] for event_id in following.event_ids))
            following = next(answered, None)
        assert at[submission.event_ids[0]] > highest, "what was answered before it was asked for stands behind it"


def test_what_arrives_for_the_first_time_arrives_in_the_order_of_acceptance(tenant: str) -> None:
    superuser = make_conninfo(**database.login())
    dice = random.Random(SEED)
    journal.install(superuser)
    try:
        with Moody(SEED) as receiver:
            patient, _ = deliveries.endpoint(tenant, receiver.url + "patient", ordered=True, retry_schedule=[1] * 40)
            hasty, _ = deliveries.endpoint(
                tenant, receiver.url + "hasty", ordered=True, order_patience=2, retry_schedule=[1] * 40
            )
            each = EVENTS // PRODUCERS
            callers = [None, None, *(rows.caller(tenant=tenant) for _ in range(PRODUCERS - 2))]
            producers = [Producer(tenant, f"p{at}", each, caller) for at, caller in enumerate(callers)]
            with Consumer(dispatchers=3):
                began = time.monotonic()
                for producer in producers:
                    producer.start()
                for kill in range(KILLS):
                    wanted = 2 * EVENTS * (kill + 1) // (KILLS + 1)
                    wait_until(partial(arrived, receiver, wanted), DONE_S, f"{wanted} requests arrived")
                    wait_until(lambda: kill_a_holder(dice), NOTICED_S, "somebody to kill")
                submissions = [one for producer in producers for one in producer.finish(DONE_S)]
                wait_until(lambda: deliveries.unsettled(tenant) == 0, DONE_S, "everything is settled")
                took = time.monotonic() - began
        lines = lines_of.read(superuser, tenant)
    finally:
        journal.uninstall(superuser)
    for endpoint, path in ((patient, "/patient"), (hasty, "/hasty")):
        line = lines.places[endpoint.endpoint_id]
        assert len(line) == each * PRODUCERS
        check_acceptance(line, submissions)
        check_the_order(line, receiver, path)
        check_nothing_went_past(lines, line, receiver, path)
    left = [place for line in lines.places.values() for place in line if place.left]
    assert {place.endpoint_id for place in left} <= {hasty.endpoint_id}, "without a policy nobody leaves"
    assert Resolution.objects.filter(decision="moved_aside").count() == len(left)
    again = len(receiver.arrived) - 2 * each * PRODUCERS
    assert again > 0, "nothing had to be sent again"
    breaches = [
        one for stretch in audit.walk(WALKS, batch=5_000, patience_ms=LEASE_TTL_MS + 10_000) for one in stretch.breaches
    ]
    assert breaches == []
    print(
        f"{2 * each * PRODUCERS} deliveries in {took:.1f} s, {again} repeats, {len(left)} moved aside, {receiver.ways}"
    )
