"""When it is quiet, what must hold then, and the figures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.chaos.receiver import REFUSED, Record
from tests.chaos.submitter import Submitter
from tests.chaos.world import World
from tests.history import checker, journal
from tests.support.programs import BASE_DIR

STILL_S = 4.0
"""For how long nothing may change: several sweeps."""
QUIET = """
SELECT count(*) FILTER (WHERE until IS NOT NULL OR (endpoint.enabled
                        AND dispatch.due_at < clock_timestamp() + interval '45 seconds')) AS busy,
       (SELECT count(*) FROM ledger_takeover) AS takeovers, (SELECT count(*) FROM deliveries_attempt) AS attempts,
       (SELECT count(*) FROM ledger_operation WHERE status = 'unknown') AS unknown,
       (SELECT count(*) FROM ledger_lease WHERE owner IS NOT NULL) AS held
FROM ledger_dispatch AS dispatch JOIN deliveries_endpoint AS endpoint USING (endpoint_id)
"""


def wait_for_quiet(world: World, seconds: float) -> tuple[float | None, dict[str, Any]]:
    """Wait until nothing is claimed, nothing is due within 45 s, no lease is held and nothing changed for STILL_S.

    What needs a person is at rest: the unknown that nothing more is planned for, and what waits at a closed endpoint.
    Seconds until then (None: not in time), and what was seen.
    """
    begun = time.monotonic()
    since, last = begun, None
    while time.monotonic() - begun < seconds:
        world.look()
        seen = rows(world, QUIET)[0]
        now = time.monotonic()
        if seen != last or seen["busy"] or seen["held"]:
            since, last = now, seen
        elif now - since >= STILL_S:
            return since - begun, seen
        time.sleep(0.25)
    return None, last or {}


def rows(world: World, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(world.superuser, row_factory=dict_row) as connection:
        return connection.execute(query).fetchall()


def violations(world: World, submitter: Submitter, records: list[Record]) -> list[str]:
    """Every breach, in words."""
    history = journal.read(world.superuser)
    arrivals = [record.arrival() for record in records]
    found = [str(one) for one in checker.check(history, arrivals, accepted=set(submitter.accepted.values()))]
    found += submitter.complaints
    found += [f"{key} never got an answer" for key in sorted(submitter.unanswered)]
    found += (
        _keys(world, submitter)
        + _second_sends(records)
        + _sends_after_asking(world, records)
        + _bodies(world, records)
        + _audit(world)
    )
    return found


def _keys(world: World, submitter: Submitter) -> list[str]:
    """One event for each key, and it is the one that the producer was told of."""
    stored: dict[str, list[str]] = defaultdict(list)
    for row in rows(world, "SELECT idempotency_key, event_id FROM deliveries_event"):
        stored[row["idempotency_key"]].append(f"evt_{row['event_id'].hex}")
    wrong = [f"key {key} has {len(events)} events" for key, events in stored.items() if len(events) > 1]
    wrong += [f"key {key} got 202 and has no event" for key in submitter.accepted if key not in stored]
    return wrong


def _second_sends(records: list[Record]) -> list[str]:
    """Where a receiver neither drops duplicates nor can be asked, nothing follows a request that it may have taken."""
    by_operation: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        if one.endpoint.startswith("neither"):
            by_operation[one.operation_id].append(one)
    return [
        f"{key} at {arrivals[0].endpoint} was sent again after it may have been taken: "
        f"{[(one.attempt, one.epoch, one.way, one.answered) for one in arrivals]}"
        for key, arrivals in by_operation.items()
        if any(one.way not in REFUSED or one.answered is None for one in sorted(arrivals, key=lambda r: r.at)[:-1])
    ]


def _sends_after_asking(world: World, records: list[Record]) -> list[str]:
    """Who can only be asked is sent to again when it has answered that none of the sends before ever arrived.

    Limit: sends are compared by number, since one that was begun earlier may arrive later.
    """
    query = (
        "SELECT run_id::text, covers, received_at FROM deliveries_acknowledgement"
        " WHERE said = 'never_arrived' AND source = 'query'"
    )
    cleared: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(world, query):
        cleared[row["run_id"]].append(row)
    by_operation: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        if one.endpoint == "queryable":
            by_operation[one.operation_id].append(one)
    wrong = []
    for key, arrivals in by_operation.items():
        ordered = sorted(arrivals, key=lambda one: one.attempt)
        for before, after in pairwise(ordered):
            if before.way in REFUSED and before.answered is not None:
                continue
            if not any(
                row["covers"] >= before.attempt and row["received_at"] < after.at for row in cleared[after.run_id]
            ):
                wrong.append(
                    f"{key} was sent again as attempt {after.attempt}, and nobody had said that attempt"
                    f" {before.attempt} ({before.way}, {before.answered}) never arrived"
                )
    return wrong


def _bodies(world: World, records: list[Record]) -> list[str]:
    """What arrived is what was accepted, byte for byte."""
    query = "SELECT event_id, encode(sha256(payload), 'hex') AS hash FROM deliveries_event"
    stored = {row["event_id"].hex: row["hash"] for row in rows(world, query)}
    strange = []
    for one in records:
        hex_id = one.webhook_id.removeprefix("evt_").replace("-", "")
        if stored.get(hex_id) != one.body_sha256:
            strange.append(f"{one.webhook_id} attempt {one.attempt} arrived with other bytes than were accepted")
    return strange


def _audit(world: World) -> list[str]:
    """What `manage.py check_ledger` says, where there is such a command."""
    if not any((BASE_DIR / app / "management/commands/check_ledger.py").exists() for app in ("relay", "ledger")):
        return []
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "check_ledger"],
        cwd=BASE_DIR, env=os.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return []
    return [f"check_ledger ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-1000:]}"]


def figures(world: World, records: list[Record]) -> dict[str, Any]:
    """What happened, in numbers."""
    states = rows(world, "SELECT status, count(*) AS n FROM ledger_operation GROUP BY status ORDER BY status")
    fenced = rows(world, "SELECT statement, count(*) AS n FROM ledger_fenced_write GROUP BY statement")
    (counts,) = rows(
        world,
        "SELECT (SELECT count(*) FROM ledger_takeover) AS takeovers, (SELECT count(*) FROM deliveries_attempt) AS"
        " attempts, (SELECT count(*) FROM ledger_operation WHERE result ->> 'converged_by' = 'late evidence') AS"
        " late_evidence_converged, (SELECT count(*) FROM ledger_operation WHERE result ->> 'converged_by' IS NOT NULL)"
        " AS converged, (SELECT count(DISTINCT new ->> 'operation_key') FROM journal WHERE \"table\" ="
        " 'ledger_operation' AND new ->> 'status' = 'unknown') AS unknown_seen, (SELECT count(*) FROM"
        " deliveries_acknowledgement) AS words",
    )
    arrived = Counter((one.endpoint, one.webhook_id) for one in records)
    return {
        "deliveries": {row["status"]: row["n"] for row in states},
        "fenced_writes": {row["statement"]: row["n"] for row in fenced},
        "arrivals": len(records),
        "duplicates_at_receiver": sum(arrived.values()) - len(arrived),
        **counts,
    }
