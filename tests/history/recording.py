"""A short life of the real engine, journalled: everything a delivery can live through, in one consumer."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from deliveries import ids
from deliveries.audit import WALKS
from ledger import audit
from ledger.audit import Breach
from ledger.managers import run, task, unknown
from ledger.models import Dispatch, Lease, Operation
from ledger.outcome import Applied
from ledger.statements import in_transaction
from ledger.states import Decision, RunReason
from tests.history import journal
from tests.history.checker import Arrival
from tests.history.journal import History
from tests.receiver import Answer, Received, Receiver
from tests.support import database, deliveries
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, events, submitted
from tests.support.programs import LEASE_TTL_MS
from tests.support.sink import reserve
from tests.support.waiting import wait_until

SCRIPT: Mapping[str, tuple[int | None, ...]] = {
    "good": (200,),
    "flaky": (500, 503, 200),
    "refusing": (400, 404),
    "doubtful": (500, 200),
    "hanging": (None, 200),
}
"""What the receiver answers to the attempts of one event, by the path; None: nothing at all."""
IDEMPOTENT = {name: name != "doubtful" for name in SCRIPT}
SOON_S = 20.0


@dataclass(frozen=True, slots=True)
class Recording:
    """What happened, what receivers counted of it, and what the producer was told."""

    history: History
    arrivals: tuple[Arrival, ...]
    accepted: frozenset[str]
    breaches: tuple[Breach, ...]
    """What the audit found meanwhile, again and again."""


class Counted:
    """Answers by the script, and counts each complete request."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self._times: Counter[tuple[str, str]] = Counter()

    def __call__(self, received: Received) -> Answer:
        name, headers = urlsplit(received.path).path.strip("/"), received.headers
        turn = self._times[name, headers["idempotency-key"]]
        self._times[name, headers["idempotency-key"]] += 1
        status = SCRIPT[name][min(turn, len(SCRIPT[name]) - 1)]
        self.arrivals.append(
            Arrival(
                headers["idempotency-key"], int(headers["relay-attempt"]), int(headers["relay-epoch"]),
                headers["webhook-id"], status, datetime.now(UTC),
            )
        )  # fmt: skip
        return Answer(hang=True) if status is None else Answer(status)


def superuser() -> str:
    """The connection string under which the journal is installed and read."""
    return make_conninfo(**database.login())


def record() -> Recording:
    """Run it: some twenty seconds."""
    journal.install(superuser())
    counted = Counted()
    breaches: list[Breach] = []
    try:
        with Receiver(counted) as receiver, Consumer():
            watched = _live(receiver, breaches)
        history = journal.read(superuser())
    finally:
        journal.uninstall(superuser())
    accepted = frozenset(ids.render(ids.EVENT, one.event_id) for one in watched)
    return Recording(history, tuple(counted.arrivals), accepted, tuple(breaches))


def _audited(breaches: list[Breach]) -> bool:
    """The audit in the middle of traffic; it counts as a condition that is always true."""
    for stretch in audit.walk(WALKS, batch=7, patience_ms=LEASE_TTL_MS + 10_000):
        breaches += stretch.breaches
    return True


def _live(receiver: Receiver, breaches: list[Breach]) -> list[Watched]:
    tenant = deliveries.tenant()
    for name, idempotent in IDEMPOTENT.items():
        deliveries.endpoint(
            tenant, receiver.url + name, types=[name], idempotent=idempotent,
            retry_schedule=[1] if name == "refusing" else [1, 1, 1],
        )  # fmt: skip
    with reserve() as nobody:
        port = nobody.getsockname()[1]
        deliveries.endpoint(tenant, f"http://127.0.0.1:{port}/", types=["nobody"], retry_schedule=[1])
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        one = {name: submitted(events(tenant, type=name)) for name in (*SCRIPT, "nobody") if name != "hanging"}
        one["doubtful"] += submitted(events(tenant, 2, type="doubtful"))
        one["good"] += submitted(events(tenant, 5, type="good"))
        later = submitted(events(tenant, 2, type="good", deliver_at=tomorrow))
        assert in_transaction(lambda: run.cancel([later[0].run_id]))

        # Alone in its worker's hands: what was lost with it at an endpoint that promises nothing would never end.
        others = [each for name in ("good", "flaky", "refusing", "nobody") for each in one[name]]
        wait_until(
            lambda: _audited(breaches) and not [each for each in others if _unsettled(each)], NOTICED_S, "these ended"
        )
        one["hanging"] = submitted(events(tenant, type="hanging"))
        (hanging,) = one["hanging"]
        wait_until(lambda: _audited(breaches) and _arrived(receiver, hanging), SOON_S, "the hanging request arrived")
        os.kill(pid_of(Lease.objects.get(run_id=hanging.run_id).owner or ""), signal.SIGKILL)

        kept, confirmed, again = one["doubtful"]
        wait_until(
            lambda: _audited(breaches) and all(_parked(each) for each in one["doubtful"]),
            SOON_S,
            "the doubtful ones are unknown",
        )
        _resolve(confirmed, Decision.SUCCEEDED)
        _resolve(again, Decision.RETRY)
        wait_until(
            lambda: _audited(breaches) and not [each for each in (hanging, again) if _unsettled(each)],
            NOTICED_S + SOON_S, "all ended",
        )  # fmt: skip
        assert kept.status == "unknown"
        _replay(one["good"][0])
        wait_until(lambda: _audited(breaches) and Dispatch.objects.count() == 2, SOON_S, "the replay is delivered too")
    return [*(each for found in one.values() for each in found), *later]


def _arrived(receiver: Receiver, one: Watched) -> bool:
    return any(request.headers["webhook-id"] == one.webhook_id for request in list(receiver.requests))


def _parked(one: Watched) -> bool:
    operation = one.operation
    return operation.status == "unknown" and operation.dispatch_owner is None


def _unsettled(one: Watched) -> bool:
    return Dispatch.objects.filter(operation_id=one.operation_key).exists()


def _resolve(one: Watched, decision: Decision) -> None:
    seen = Operation.objects.get(operation_key=one.operation_key).revision
    answer = in_transaction(
        lambda: unknown.resolve(
            operation_key=one.operation_key, revision=seen, decision=decision, actor="a person", reason="a test"
        )
    )
    assert isinstance(answer, Applied), answer


def _replay(one: Watched) -> None:
    task_id = one.run.task_id
    answer = in_transaction(lambda: task.open_run([task_id], reason=RunReason.REPLAY))
    assert isinstance(answer[task_id], Applied), answer
