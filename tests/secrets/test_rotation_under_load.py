"""Secrets are rotated again and again while web server and consumers are at work: no request is ever made that a
receiver which holds the old secret, or one which holds the new one as soon as it was told of it, could not verify."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest
import requests
from django.db import connections

from deliveries import ids, keys
from deliveries.models import Endpoint, Scope
from deliveries.rotation import MOST_FORMER
from tests.secrets.verifying import Verifier
from tests.support.consumer import Consumer
from tests.support.deliveries import endpoint, events, submitted, tenant, unsettled
from tests.support.waiting import wait_until
from tests.support.web import Web

SOAK = os.environ.get("RELAY_SOAK") == "1"
ROUNDS, ROTATIONS = (20, MOST_FORMER) if SOAK else (1, 5)
PER_SECOND = 40
TIMEOUT_MS, LEASE_TTL_MS = "3000", "9000"
LONGEST_ROTATION_S = 9 + 2 + 10
"""A lease, the margin, and a slow machine."""


@pytest.fixture
def web(emptied: None) -> Iterator[Web]:
    with Web() as running:
        yield running


class Feeder:
    """Submits an event every so often until it is told to stop."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.stopping = threading.Event()
        self.submitted = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self.stopping.wait(1 / PER_SECOND):
                submitted(events(self.tenant_id))
                self.submitted += 1
        finally:
            connections.close_all()


def rotate(web: Web, key: str, one: Endpoint) -> str:
    """The new secret, as soon as the API answered."""
    answer = requests.post(
        f"{web.url}/v1/endpoints/{ids.render(ids.ENDPOINT, one.endpoint_id)}/secret/rotate",
        json={"overlap_hours": 1},
        headers={"Authorization": f"Bearer {key}"},
        timeout=LONGEST_ROTATION_S,
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["settled"], answer.text
    return str(answer.json()["secret"])


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_every_request_is_verified_by_who_holds_the_old_secret_and_by_who_holds_the_new_one(web: Web) -> None:
    with Consumer(RELAY_HTTP_TIMEOUT_MS=TIMEOUT_MS, RELAY_LEASE_TTL_MS=LEASE_TTL_MS):
        for number in range(ROUNDS):
            one_round(web, number)


def one_round(web: Web, number: int) -> None:
    tenant_id = tenant()
    _, key = keys.new_key("a test", [Scope.ENDPOINTS_WRITE], tenant_id)
    with Verifier(number, slow_s=1.0) as old, Verifier(number, slow_s=1.0, hangs=150) as new:
        staying, stays_with = endpoint(tenant_id, old.url)
        following, begins_with = endpoint(tenant_id, new.url)
        old.hold(stays_with)
        new.hold(begins_with)
        took = []
        with Feeder(tenant_id) as feeder:
            wait_until(lambda: old.verified > 5 and new.verified > 5, 30, "deliveries flow")
            for _ in range(ROTATIONS):
                begun, before = time.monotonic(), new.verified
                rotate(web, key, staying)
                new.hold(rotate(web, key, following))
                took.append(time.monotonic() - begun)
                wait_until(lambda: new.verified > before + 10, 30, "deliveries under the new secret")  # noqa: B023
        wait_until(lambda: unsettled(tenant_id) == 0, 60, "everything delivered")
        print(
            f"{feeder.submitted} events, {old.verified} and {new.verified} requests; "
            f"two rotations took {min(took):.2f} to {max(took):.2f} s"
        )
        assert old.refused == []
        assert new.refused == []
        assert min(old.verified, new.verified) >= feeder.submitted
