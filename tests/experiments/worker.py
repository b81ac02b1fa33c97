"""The test's side of `holder.py`: starts it, tells it what to do, and hears what came of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from ledger.models import Lease, Operation, Run
from relay.processes import bound_to_parent
from tests.support import database, mutants
from tests.support.deliveries import Watched
from tests.support.ledger_rows import Planted
from tests.support.programs import BASE_DIR, TIMINGS, suspend
from tests.support.waiting import wait_until

ANSWERS_S = 30.0


class Worker:
    """A holder's process, from the `with` to its end. `mutant`: which condition its statements lack."""

    def __init__(
        self, owner: str, planted: Planted | Watched, *, mutant: str | None = None, **environment: str
    ) -> None:
        self.owner = owner
        self.planted = planted
        self.environment = {**environment, **mutants.environment(mutant)}
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        run_id, key = str(self.planted.run_id), str(self.planted.operation_key)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.experiments.holder", self.owner, run_id, key],
            cwd=BASE_DIR,
            env={
                **inherited,
                **TIMINGS,
                "DJANGO_SETTINGS_MODULE": "relay.settings",
                "DATABASE_URL": database.url(),
                **self.environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select() knows nothing of what lies in a buffer of ours
            start_new_session=True,
            preexec_fn=bound_to_parent(signal.SIGKILL),  # noqa: PLW1509 - two system calls, and no lock is taken
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=ANSWERS_S)

    def send(self, do: str, **arguments: Any) -> None:
        """Tell it, and do not wait: it reads this when it is awake."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Its next answer."""
        stdout = self._process.stdout
        assert stdout is not None
        assert select.select([stdout], [], [], ANSWERS_S)[0], f"{self.owner} did not answer in {ANSWERS_S} s"
        line = stdout.readline()
        assert line, f"{self.owner} ended with {self._process.wait(ANSWERS_S)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Tell it and hear what came of it."""
        self.send(do, **arguments)
        return self.answer()

    def stand_still(self) -> None:
        """SIGSTOP."""
        suspend(self._process.pid)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)


def wait_for_the_end_of_the_lease(planted: Planted) -> None:
    """By the database's clock."""
    query = "SELECT count(*) FROM ledger_lease WHERE run_id = %s::uuid AND expires_at <= clock_timestamp()"
    wait_until(lambda: database.scalar(query, str(planted.run_id)), 20, "the lease ran out")


def state(planted: Planted) -> dict[str, dict[str, Any]]:
    """Every column of run, lease and operation, for a comparison of before and after."""
    return {
        "run": Run.objects.filter(run_id=planted.run_id).values().get(),
        "lease": Lease.objects.filter(run_id=planted.run_id).values().get(),
        "operation": Operation.objects.filter(operation_key=planted.operation_key).values().get(),
    }
