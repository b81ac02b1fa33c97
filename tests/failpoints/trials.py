"""One worker fails at a point, with a delivery to each kind of endpoint in its hands; another takes over.

All trials share one healthy consumer and one wait for the leases: while the armed ones fail, one after the other, the
healthy one stands still, and none of them sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from deliveries.failpoints import Action, Point
from deliveries.models import Endpoint
from ledger.models import Task
from tests.history import journal
from tests.history.checker import Arrival, Violation, check
from tests.history.recording import superuser
from tests.support import deliveries
from tests.support.armed import ArmedConsumer, RecordingSink
from tests.support.consumer import NOTICED_S, Consumer, pid_of
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.sink import Arrived
from tests.support.sweeps import Sweeps
from tests.support.waiting import wait_until

KINDS = {
    "idempotent": {"idempotent": True},
    "queryable": {"idempotent": False},
    "both": {"idempotent": True},
    "neither": {"idempotent": False},
}
ASKED = ("queryable", "both")
"""What an endpoint's receiver promises."""
UNCLAIMED = (Point.BEFORE_CLAIM, Point.IN_CLAIM)
UNSENT = (Point.AFTER_CLAIM, Point.BEFORE_SEND)
SENT = (Point.AFTER_SEND, Point.BEFORE_SETTLE, Point.IN_SETTLE, Point.AFTER_SETTLE)
RESTS_S = 3 * NOTICED_S


@dataclass
class Trial:
    """`failed`: the pid of the worker that failed. `one`: the delivery to each kind of endpoint."""

    point: Point
    action: Action
    tenant: str
    sink: RecordingSink
    failed: int = 0
    one: dict[str, Watched] = field(default_factory=dict)

    def arrivals(self, kind: str) -> list[Arrived]:
        """What came to the receiver of that kind, but for questions."""
        return [request for request in list(self.sink.requests) if request.path == f"/{kind}"]

    def lost(self, owner: str | None) -> bool:
        """Whether an owner was the worker that failed."""
        return owner is not None and pid_of(owner) == self.failed

    def submit(self) -> None:
        """One event, and so one commit, to four endpoints."""
        kinds = {}
        for kind, promises in KINDS.items():
            made, _ = endpoint(self.tenant, self.sink.url + kind, **promises)
            kinds[made.pk] = kind
        for one in submitted(events(self.tenant)):
            self.one[kinds[Task.objects.get(active_run_id=one.run_id).endpoint_id]] = one

    def fail(self, stack: ExitStack) -> None:
        """Have a consumer claim all of it and fail. What is left of it dies too, or stands still until `stack` ends."""
        if self.point is Point.BEFORE_CLAIM:
            self.submit()  # An idle dispatcher comes by this point as well.
        consumer = stack.enter_context(ArmedConsumer(self.point, self.action))
        self.consumer = consumer
        if self.point is not Point.BEFORE_CLAIM:
            self.submit()
        if self.point in SENT:
            self.sink.wait_for(len(KINDS))
            self.sink.let_go()
        self.failed = consumer.wait_until_failed()
        if self.action is Action.KILL:
            consumer.kill_all()
        else:
            consumer.stand_still()
        # The next one to be armed would take it.
        Endpoint.objects.filter(tenant_id=self.tenant).update(enabled=False)

    def leave_to_others(self) -> None:
        """Open the endpoints again, and let it be known where their receivers may be asked.

        Not before: whoever is to fail next could be in the middle of a question, and keep others from asking it.
        """
        for made in Endpoint.objects.filter(tenant_id=self.tenant):
            kind = made.url.rpartition("/")[2]
            made.query_url = f"{self.sink.url}query" if kind in ASKED else None
            made.enabled = True
            made.save(update_fields=["query_url", "enabled"])

    def rests(self) -> bool:
        """Whether everything is settled, but for what only a person can settle."""
        return all(
            one.status == "succeeded" or (kind == "neither" and one.status == "unknown")
            for kind, one in self.one.items()
        )

    def refused(self) -> bool:
        """Whether a write of the woken worker was refused."""
        return any(self.lost(write.owner) for one in self.one.values() for write in one.fenced_writes)


@dataclass(frozen=True)
class Tried:
    """`violations`: what the whole history, row change by row change, shows to be against the protocol."""

    trials: dict[tuple[Point, Action], Trial]
    violations: list[Violation]


@contextmanager
def tried(cases: list[tuple[Point, Action]]) -> Iterator[Tried]:
    """Every case, come to rest, with those that stood still awake again and fenced out."""
    journal.install(superuser())
    with ExitStack() as stack:
        stack.callback(journal.uninstall, superuser())
        healthy = stack.enter_context(Consumer())
        sweeps = Sweeps(deliveries.tenant())
        healthy.stand_still()
        trials = {}
        for point, action in cases:
            sink = stack.enter_context(RecordingSink(held=point in SENT))
            trials[point, action] = trial = Trial(point, action, deliveries.tenant(), sink)
            trial.fail(stack)
        for trial in trials.values():
            trial.leave_to_others()
        healthy.go_on()
        _each(trials, Trial.rests, "settled after the takeover")
        stopped = {case: trial for case, trial in trials.items() if trial.action is Action.STOP}
        for trial in stopped.values():
            trial.consumer.go_on()
        held = {case: one for case, one in stopped.items() if one.point not in (*UNCLAIMED, Point.AFTER_SETTLE)}
        _each(held, Trial.refused, "its writes were refused when it woke")
        sweeps.wait_for(3)
        _each(trials, Trial.rests, "still settled")
        yield Tried(trials, check(journal.read(superuser()), _counted(trials)))


def _counted(trials: dict[tuple[Point, Action], Trial]) -> list[Arrival]:
    """What all receivers counted. Each answered all that it got, at once or when it was let go."""
    counted = []
    for trial in trials.values():
        for request, at in zip(trial.sink.requests, trial.sink.moments, strict=True):
            presented = int(request.headers["relay-attempt"]), int(request.headers["relay-epoch"])
            counted.append(Arrival(request.headers["idempotency-key"], *presented, request.event, 200, at))
    return counted


def _each(trials: dict[tuple[Point, Action], Trial], done: Callable[[Trial], bool], what: str) -> None:
    for (point, action), trial in trials.items():
        try:
            wait_until(lambda trial=trial: done(trial), RESTS_S, f"{point}:{action} {what}")  # type: ignore[misc]
        except AssertionError as late:
            late.add_note(str({kind: one.rows()["operation"] for kind, one in trial.one.items()}))
            raise
