"""A second connection in a thread of its own, and a third that sees whom the server keeps waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import psycopg
from django.db import connection

from tests.support.waiting import wait_until

Result = TypeVar("Result")
DEADLINE_S = 10.0


class Rival(Generic[Result]):
    """Runs `work` at once on a connection of its own. Its answer is `result()`, its server process `pid`."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._answer: Future[Result] = Future()
        self._connected: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self.pid = self._connected.result(DEADLINE_S)

    def _run(self, work: Callable[[], Result]) -> None:
        try:
            connection.ensure_connection()
            raw: psycopg.Connection[Any] = connection.connection
            self._connected.set_result(raw.info.backend_pid)
            self._answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is asked for
            (self._answer if self._connected.done() else self._connected).set_exception(error)
        finally:
            connection.close()

    @property
    def done(self) -> bool:
        return self._answer.done()

    def result(self) -> Result:
        """What `work` returned or raised; TimeoutError after the deadline."""
        answer = self._answer.result(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        return answer


class Observer:
    """Asks the server, outside of every transaction."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def scalar(self, query: str, *parameters: Any) -> Any:
        """The one value that a query answers; None when it answers no row."""
        found = self._raw.execute(query.encode(), parameters).fetchone()
        return found[0] if found else None

    def column(self, query: str) -> set[Any]:
        """The values of the one column that a query answers. What it locks is free again at once."""
        return {value for (value,) in self._raw.execute(query.encode()).fetchall()}

    def waits(self, pid: int) -> bool:
        """Whether that server process waits for a lock at this moment."""
        return bool(
            self.scalar(
                "SELECT wait_event_type = 'Lock' AND state = 'active' FROM pg_stat_activity WHERE pid = %s", pid
            )
        )

    def see_waiting(self, rival: Rival[Any], statement: str) -> None:
        """Go on only when the rival is seen waiting for a lock, in the statement of that name."""
        wait_until(lambda: self.waits(rival.pid), DEADLINE_S, f"{statement} waits for a lock")
        query = self.scalar("SELECT query FROM pg_stat_activity WHERE pid = %s", rival.pid)
        assert query.startswith(f"/* relay: {statement} */"), query

    def see_waiting_or_done(self, rival: Rival[Any]) -> bool:
        """Whether the rival waits for a lock (True) or came through without (False), once one of the two is certain."""
        wait_until(lambda: rival.done or self.waits(rival.pid), DEADLINE_S, "the rival waits or is done")
        return not rival.done


@contextmanager
def observing() -> Iterator[Observer]:
    """An observer on a connection of its own."""
    parameters = {
        name: value for name, value in connection.get_connection_params().items()
        if name in ("dbname", "user", "password", "host", "port")
    }  # fmt: skip
    with psycopg.connect(**parameters, autocommit=True) as raw:
        yield Observer(raw)
