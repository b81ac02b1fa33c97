"""Producers that submit at the same time, each one event (or batch) after another, and remember when."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass

from django.db import connections

from deliveries import ids
from deliveries.submit import Accepted, NewEvent, submit
from ledger.models import Dispatch
from tests.api.rows import Caller
from tests.support.waiting import wait_until

BACKLOG = 80
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Submission:
    """Events that were accepted together, in their order; monotonic seconds before the call and after its answer."""

    event_ids: tuple[uuid.UUID, ...]
    asked_at: float
    answered_at: float


class Producer(threading.Thread):
    """Submits `count` events. With a `caller` through the API, one request each; else in batches of one to five.

    Each waits while much is queued, so that what is sent and what is accepted meet all the time.
    """

    def __init__(self, tenant_id: str, name: str, count: int, caller: Caller | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.tenant_id, self.count, self.caller = tenant_id, count, caller
        self.submissions: list[Submission] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while number < self.count:
                wait_until(self._short, PATIENCE_S, "the queue has become short")
                many = 1 if self.caller else min(number % 5 + 1, self.count - number)
                self._submit(range(number, number + many))
                number += many
        except BaseException as error:  # noqa: BLE001 - it is raised again by who waits for the thread
            self.error = error
        finally:
            connections.close_all()

    def finish(self, seconds: float) -> list[Submission]:
        """Wait for its end: what it submitted."""
        self.join(seconds)
        assert not self.is_alive(), f"{self.name} has not come to its end"
        if self.error is not None:
            raise self.error
        return self.submissions

    def _short(self) -> bool:
        return Dispatch.objects.filter(tenant_id=self.tenant_id).count() < BACKLOG

    def _submit(self, numbers: range) -> None:
        asked_at = time.monotonic()
        if self.caller:
            answer = self.caller.post("/v1/events", {"type": "line.grows", "data": {"of": self.name, "no": numbers[0]}})
            assert answer.status_code == 202, answer.content
            found = [ids.parse(ids.EVENT, answer.json()["id"])]
        else:
            payloads = [json.dumps({"of": self.name, "no": number}).encode() for number in numbers]
            answers = submit([NewEvent(self.tenant_id, "line.grows", payload) for payload in payloads])
            found = [answer.event_id for answer in answers if isinstance(answer, Accepted)]
            assert len(found) == len(payloads)
        self.submissions.append(Submission(tuple(found), asked_at, time.monotonic()))
