"""Huey's consumer, stopped gently by either signal.

Huey drains on one signal and interrupts running tasks on the other, and a second one of the first interrupts too. A
dispatcher that is interrupted leaves operations unknown, so here both signals drain, however often they come; what
does not end by itself in time is interrupted by the shutdown timeout, and a supervisor still has SIGKILL.
"""

from __future__ import annotations

import signal
from datetime import datetime
from types import FrameType
from typing import Any

from django.conf import settings
from huey import Huey
from huey.consumer import Consumer, ProcessEnvironment, Scheduler, Worker

from deliveries.dispatch.stopping import STOP
from relay.processes import end_with_parent

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def drain_seconds() -> float:
    """How long a drain may take: whoever is still busy a moment after its last lease ran out is stuck.

    The lease and not RELAY_HTTP_TIMEOUT_MS, because an endpoint's own timeout may be as long as a lease carries.
    """
    return float(settings.RELAY_LEASE_TTL_MS) / 1000 + 5.0


class DrainingEnvironment(ProcessEnvironment):  # type: ignore[misc]
    """Worker processes that leave stopping to their parent, and drain when it is gone."""

    def init_child(self, process: Worker | Scheduler) -> None:
        """In the new worker: signals for the whole group are the parent's business.

        The interrupt that the parent sends at the end of its patience is SIGUSR1, so that it cannot be mistaken.
        """
        super().init_child(process)
        for signum in STOP_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, _interrupt(process))
        signal.signal(signal.SIGUSR2, lambda signum, frame: process.stop_flag.set())
        end_with_parent(signal.SIGUSR2)


class DispatchingWorker(Worker):  # type: ignore[misc]
    """A worker that looks, whenever it has waited for a task in vain, whether a dispatcher is lacking."""

    def loop(self, now: datetime | None = None) -> None:
        before = self.task_count
        super().loop(now)
        if self.task_count == before and not self.stop_flag.is_set():
            # Late, because Huey's object, which the settings make, must be there first.
            from deliveries.tasks import fill_in

            fill_in()


def _interrupt(process: Worker | Scheduler) -> Any:
    def interrupt(signum: int, frame: FrameType | None) -> None:
        if process.huey._tasks_in_flight:  # noqa: SLF001 - Huey's own handler asks the same
            raise KeyboardInterrupt

    return interrupt


class DrainingConsumer(Consumer):  # type: ignore[misc]
    """A consumer of worker processes that drains on SIGINT and on SIGTERM, once, however often they come.

    A task that lingers must end by itself: it looks at `STOP`, whose flag is set when the consumer is told to stop, and
    when its parent process is gone.
    """

    worker_class = DispatchingWorker

    def __init__(self, huey: Huey, **options: Any) -> None:
        super().__init__(huey, **options)
        STOP.watch(self.stop_flag)

    def get_environment(self, worker_type: str) -> Any:
        if worker_type != "process":
            return super().get_environment(worker_type)
        return DrainingEnvironment(signal.SIGINT, signal.SIGUSR1)

    def _handle_signal(self, signum: int, frame: FrameType | None) -> None:
        self._signum = signum
        self._restart, self._graceful = self._signal_actions[signum]

    def start(self) -> None:
        """Huey sets its handlers last, and would be killed by a signal that comes while its workers start."""
        self._set_signal_handlers()
        super().start()

    def _set_signal_handlers(self) -> None:
        self._signal_actions.update(dict.fromkeys(STOP_SIGNALS, (False, True)))
        super()._set_signal_handlers()
