"""Asking many receivers: a bounded round, in a task of its own, so that nobody who dispatches waits for an answer.

The round's own thread talks to the database; a few others do HTTP and nothing else. Of one endpoint at most two
questions are in flight, and one that does not answer is left alone for the rest of the round, so that it holds up
neither the others nor, for longer than a round, the worker.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from django.db import DEFAULT_DB_ALIAS, connections

from deliveries import querying
from deliveries.querying import Due, Question, Reply

AT_ONCE = 8
OF_ONE_ENDPOINT = 2
MOST = 200
"""How many questions one round asks."""
SECONDS = 20.0
"""For how long a round begins questions; those in flight then have their own deadline."""
LOOK_S = 0.2
LOOKS = 40
_ROUND = (0x41736B21, 0)
"""The advisory lock of the round: one at a time, over all consumers, so that the limits hold."""


@dataclass(slots=True)
class _Place:
    """Where this process's walks over the unknown operations stand; each goes round and round."""

    look: int = 0
    round: int = 0


_PLACE = _Place()


def any_due() -> bool:
    """Whether there is a receiver to ask, by one bounded look; the next look goes on where this one ended."""
    found, _PLACE.look = querying.due(_PLACE.look, each=1)
    return bool(found)


def ask_all(stopping: Callable[[], bool], *, seconds: float = SECONDS) -> int:
    """One round: ask what is due, until there is no more, the time is up or it is told to stop; how many were asked.

    0 at once when another round is going on. Its session keeps the advisory locks; its connection is idle, and in no
    transaction, while answers are waited for.
    """
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", _ROUND)
        if cursor.fetchone() != (True,):
            return 0
    try:
        return _Round(stopping, time.monotonic() + seconds).run()
    finally:
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.is_usable():  # otherwise the lock went with it
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", _ROUND)


class _Round:
    def __init__(self, stopping: Callable[[], bool], until: float) -> None:
        self._stopping = stopping
        self._until = until
        self._waiting: deque[Due] = deque()
        self._flights: dict[Future[Reply], Question] = {}
        self._of: Counter[uuid.UUID] = Counter()
        self._silent: set[uuid.UUID] = set()
        self.asked = 0

    def run(self) -> int:
        self._waiting.extend(_candidates())
        with ThreadPoolExecutor(AT_ONCE, "relay-query") as threads:
            try:
                while True:
                    going = time.monotonic() < self._until and not self._stopping()
                    if going:
                        self._begin(threads)
                    if not self._flights:
                        return self.asked
                    self._hear()
            finally:
                for question in self._flights.values():
                    querying.let_go(question)

    def _begin(self, threads: ThreadPoolExecutor) -> None:
        """Begin what there is room for; what waits for its endpoint's turn keeps its place."""
        held: deque[Due] = deque()
        while self._waiting and len(self._flights) < AT_ONCE:
            one = self._waiting.popleft()
            if one.endpoint_id in self._silent:
                continue
            if self._of[one.endpoint_id] >= OF_ONE_ENDPOINT:
                held.append(one)
                continue
            question = querying.prepare(one.operation_key)
            if isinstance(question, Question):
                self._of[one.endpoint_id] += 1
                self._flights[threads.submit(question.ask)] = question
        self._waiting.extendleft(reversed(held))

    def _hear(self) -> None:
        done, _ = wait(self._flights, LOOK_S, FIRST_COMPLETED)
        for future in done:
            question, reply = self._flights[future], future.result()
            querying.conclude(question, reply, actor=querying.BY_SCHEDULE)
            querying.let_go(question)
            del self._flights[future]
            self._of[question.endpoint_id] -= 1
            self.asked += 1
            if reply.status is None:
                self._silent.add(question.endpoint_id)


def _candidates() -> list[Due]:
    """What is due, in turns of the endpoints, from where this process's last round ended and once round at most."""
    begun = _PLACE.round
    from_first = begun == 0
    found: dict[int, Due] = {}
    for _ in range(LOOKS):
        stretch, _PLACE.round = querying.due(_PLACE.round)
        found.update((one.operation_key, one) for one in stretch)
        ended = _PLACE.round == 0
        if len(found) >= MOST or (from_first and (ended or 0 < begun <= _PLACE.round)):
            break
        from_first = from_first or ended
    return _spread(list(found.values()))[:MOST]


def _spread(found: list[Due]) -> list[Due]:
    """Endpoints take turns: the first of each, then the second of each, and so on."""
    place: Counter[uuid.UUID] = Counter()
    turns: list[tuple[int, int]] = []
    for at, one in enumerate(found):
        turns.append((place[one.endpoint_id], at))
        place[one.endpoint_id] += 1
    return [found[at] for _, at in sorted(turns)]
