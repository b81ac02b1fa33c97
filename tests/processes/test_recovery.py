"""A recovery of many failed deliveries by real consumers, killed with all their processes twice on the way."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from typing import Self

import psutil
import pytest

from deliveries.models import Job
from ledger.models import Operation
from tests.jobs.over import ended, recovery, runs_of
from tests.support.consumer import Consumer
from tests.support.deliveries import endpoint
from tests.support.sink import Sink
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("emptied")

COUNT = 50_000 if os.environ.get("RELAY_SOAK") else 3_000
PER_SECOND = COUNT // 10
PATIENCE_S = 900.0 if os.environ.get("RELAY_SOAK") else 120.0
SPARE_BYTES = 48 << 20
"""What the largest process may grow by in the last third of the work, whatever the amount of it."""

OVER = ("succeeded", "failed_final")


class _Memory:
    """The most that one process of a consumer has held, by mark; asked for ten times a second."""

    def __init__(self, consumer: Consumer) -> None:
        self.mark, self.peaks, self.looks = "begun", Counter[str](), Counter[str]()
        self._consumer, self._over = consumer, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for pid in self._consumer.children():
                self.peaks[self.mark] = max(self.peaks[self.mark], psutil.Process(pid).memory_info().rss)
                self.looks[self.mark] += 1


def _job(job_id: uuid.UUID) -> Job:
    return Job.objects.get(job_id=job_id)


def test_it_does_what_the_dry_run_counted_and_nothing_twice_though_killed_twice(tenant: str) -> None:
    with Sink() as sink:
        endpoint(tenant, sink.url, in_flight=100)
        assert len(ended(tenant, COUNT)) == COUNT
        counted = recovery(tenant, dry_run=True)
        with Consumer():
            wait_until(lambda: _job(counted).status == "done", PATIENCE_S, "the dry run")
        assert (_job(counted).matched, _job(counted).changed) == (COUNT, 0)
        assert set(runs_of(tenant).values()) == {1}
        assert not sink.events

        asked = recovery(tenant, dry_run=False, per_second=PER_SECOND)
        killed_at = []
        for part in (0.2, 0.5):
            with Consumer() as consumer:
                wait_until(lambda part=part: _job(asked).changed >= part * COUNT, PATIENCE_S, "some of the work")  # type: ignore[misc]
                consumer.kill_all()
                consumer.wait()
            killed_at.append(_job(asked).changed)
        assert 0 < killed_at[0] < killed_at[1] < COUNT

        def all_arrived() -> bool:
            return not Operation.objects.filter(run__task__tenant_id=tenant).exclude(status__in=OVER).exists()

        with Consumer() as consumer, _Memory(consumer) as memory:
            wait_until(lambda: _job(asked).changed >= 0.7 * COUNT, PATIENCE_S, "more of the work")
            memory.mark = "later"
            wait_until(lambda: _job(asked).status == "done", PATIENCE_S, "all of the work")
            wait_until(all_arrived, PATIENCE_S, "all delivered")

        assert (_job(asked).matched, _job(asked).changed, _job(asked).skipped) == (COUNT, COUNT, 0)
        assert Counter(runs_of(tenant).values()) == {2: COUNT}
        assert Operation.objects.filter(run__task__tenant_id=tenant, status="succeeded").count() == COUNT
        assert len(sink.events) == COUNT
        assert min(memory.looks["begun"], memory.looks["later"]) > 10, "it was watched"
        assert memory.peaks["later"] <= memory.peaks["begun"] + SPARE_BYTES, memory.peaks
        print(f"\nrecovered {COUNT}, killed at {killed_at}, most of one process: {dict(memory.peaks)} bytes")
