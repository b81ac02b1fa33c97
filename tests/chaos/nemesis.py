"""The nemesis: faults of every kind at random moments, all of them planned by the seed before the first is made.

Guarantee: the same seed plans the same faults at the same moments. Limit: a fault that takes time (a restart) pushes
back those that follow, and what the kernel and PostgreSQL do meanwhile is theirs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.world import Process, World
from tests.support.proxy import Fault, Where

KINDS = {
    "kill_worker": 5, "pause_worker": 5, "kill_consumer": 2, "kill_web": 2, "restart_postgres": 1, "kill_postgres": 1,
    "cut_all": 3, "half_message": 3, "before_answer": 3, "before_commit": 5, "after_commit": 6, "refuse": 2,
    "flush_broker": 2, "exhaust": 1,
}  # fmt: skip
"""How often each is planned, out of their sum. The first faults are one of each, so that even a short run has all."""
STATEMENTS = ("operation.claim", "operation.settle", "unknown.expire_claims", "lease.renew", "event.accept", None)
CUTS = {where.value: where for where in Where}
BEFORE_THE_END_S = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """One planned fault: at so many seconds, of that kind, with a number and a share that decide the rest."""

    at: float
    kind: str
    number: int
    share: float


def plan(seconds: float, seed: int) -> list[Step]:
    """What is done when."""
    dice = random.Random(f"{seed}/nemesis")
    count = max(1, int(seconds / 1.6))
    kinds = list(KINDS)
    dice.shuffle(kinds)
    kinds = [*kinds, *dice.choices(list(KINDS), list(KINDS.values()), k=count)][:count]
    moments = sorted(dice.uniform(1.0, max(1.5, seconds - BEFORE_THE_END_S)) for _ in kinds)
    return [Step(at, kind, dice.randrange(1_000), dice.random()) for at, kind in zip(moments, kinds, strict=True)]


class Nemesis:
    """Does what is planned to a world, and heals it."""

    def __init__(self, world: World, steps: list[Step], say: Callable[[str], None]) -> None:
        self.world = world
        self.steps = steps
        self.say = say
        self.injected: Counter[str] = Counter()
        self.stopped: dict[int, float] = {}
        """When a paused process is to go on, by its pid."""
        self.refuse_until = 0.0
        self._cuts: list[Fault] = []

    def run(self, seconds: float) -> None:
        begun = time.monotonic()
        left = list(self.steps)
        while time.monotonic() - begun < seconds:
            self._attend()
            if left and time.monotonic() - begun >= left[0].at:
                step = left.pop(0)
                self.say(f"{time.monotonic() - begun:6.1f} s: {step.kind} ({step.number}, {step.share:.2f})")
                self._do(step)
            time.sleep(0.05)

    def heal(self) -> None:
        """No more faults: what was paused goes on, what was ended runs, and everybody may connect."""
        self.world.proxy.forget()
        self.world.proxy.refuse(False)
        for pid in list(self.stopped):
            self._go_on(pid)
        self.world.look()
        for fault in self._cuts:
            self.injected[fault.where.value] += fault.fired

    def _attend(self) -> None:
        now = time.monotonic()
        for pid, until in list(self.stopped.items()):
            if now >= until:
                self._go_on(pid)
        if self.refuse_until and now >= self.refuse_until:
            self.refuse_until = 0.0
            self.world.proxy.refuse(False)
        for name in self.world.look():
            self.say(f"          {name} had ended, and is started again")

    def _do(self, step: Step) -> None:
        world = self.world
        consumer = world.consumers[step.number % len(world.consumers)]
        if step.kind in CUTS:
            statement = STATEMENTS[step.number % len(STATEMENTS)]
            self._cuts.append(world.proxy.plan(Fault(CUTS[step.kind], statement, nth=1 + step.number % 3)))
            return
        made: dict[str, Callable[[], object]] = {
            "kill_worker": lambda: self._signal(step, signal.SIGKILL),
            "pause_worker": lambda: self._pause(step),
            "kill_consumer": lambda: self._kill(consumer),
            "kill_web": lambda: self._kill(world.web),
            "restart_postgres": world.restart_postgres,
            "kill_postgres": world.kill_postgres,
            "cut_all": world.proxy.cut_all,
            "refuse": lambda: self._refuse(0.5 + 3 * step.share),
            "flush_broker": world.flush_broker,
            "exhaust": lambda: world.exhaust(0.5 + 2 * step.share),
        }
        made[step.kind]()
        self.injected[step.kind] += 1

    def _pause(self, step: Step) -> None:
        pid = self._signal(step, signal.SIGSTOP)
        if pid is not None:
            self.stopped[pid] = time.monotonic() + 0.5 + 15 * step.share  # half of them past the lease of 7.5 s

    def _refuse(self, seconds: float) -> None:
        self.world.proxy.refuse(True)
        self.refuse_until = time.monotonic() + seconds

    def _kill(self, process: Process) -> None:
        for pid in process.workers():
            self.stopped.pop(pid, None)
        process.kill_all()
        process.start()

    def _signal(self, step: Step, signum: signal.Signals) -> int | None:
        """Signal one worker, mostly one that holds leases, because most of the others are idle."""
        workers = [pid for consumer in self.world.consumers for pid in consumer.workers() if pid not in self.stopped]
        holders = self.world.holders()
        busy = [pid for pid in workers if pid in holders]
        chosen = busy if busy and step.number % 5 else workers
        if not chosen:
            return None
        pid = chosen[int(step.share * len(chosen))]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
        return pid

    def _go_on(self, pid: int) -> None:
        self.stopped.pop(pid, None)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
