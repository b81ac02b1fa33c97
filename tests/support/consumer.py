"""Real consumers: `manage.py run_huey`, its scheduler and its workers."""

from __future__ import annotations

from deliveries.dispatch.listener import taken_slots
from tests.support.programs import LEASE_TTL_MS, Program

NOTICED_S = LEASE_TTL_MS / 1000 + 10
"""How long after a worker was lost its work has been taken over at the latest: a lease, a sweep, a slow machine."""


class Consumer(Program):
    """A consumer whose dispatchers are at work once the `with` begins."""

    command = "run_huey"

    def __init__(self, dispatchers: int = 2, **environment: str) -> None:
        super().__init__(RELAY_DISPATCHERS=str(dispatchers), **environment)
        self.dispatchers = dispatchers
        self.processes = 2 * dispatchers + 2
        """A scheduler, two workers for each dispatcher and one for everything else."""

    def ready(self) -> bool:
        """All its processes run, and every dispatcher listens and holds its slot in the database."""
        at_work = taken_slots(self.pid)
        return at_work == self.dispatchers and len(self.children()) == self.processes


def pid_of(owner: str) -> int:
    """The process that an owner, `host:pid:nonce`, names."""
    return int(owner.rsplit(":", 2)[1])
