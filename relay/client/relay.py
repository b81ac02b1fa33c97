"""`Relay`: everything that a program asks of a Relay, with one key."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from relay.client import submitting
from relay.client.configuration import Job, Stats
from relay.client.endpoints import Endpoints, EventTypes, Keys, Tenants
from relay.client.errors import Misconfigured, RelayError
from relay.client.http import Http, path_of
from relay.client.paging import items
from relay.client.results import (
    Asked,
    Attempt,
    BatchResult,
    Delivery,
    DeliveryItem,
    Event,
    EventItem,
    Operation,
    OperationItem,
    Replayed,
    Sent,
)
from relay.client.submitting import NewEvent

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S, DEFAULT_RETRIES = 30.0, 4

_DELIVERY = re.compile(r"dlv_[0-9a-f]{32}")


class _Payload(msgspec.Struct):
    data: msgspec.Raw


class _Replays(msgspec.Struct):
    items: list[Replayed]


class Relay:
    """One Relay, with one key; use it as a context manager. Not for several threads at once: each needs its own.

    What is not given is read from RELAY_URL (else this machine, port 8000), RELAY_KEY and RELAY_TENANT. `tenant` is for
    an operator's key. `timeout` are the seconds that one request may wait for an answer; `retries` how often what is
    safe to repeat is repeated: GETs, and submissions, which go under a key of their own. `Misconfigured` for what
    cannot be a URL, a key or a tenant; nothing is sent before the first call.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        found = key or os.environ.get("RELAY_KEY")
        if not found:
            raise Misconfigured("There is no key: set RELAY_KEY.")
        self._http = Http(
            url or os.environ.get("RELAY_URL") or DEFAULT_URL,
            found,
            tenant or os.environ.get("RELAY_TENANT") or None,
            timeout,
            retries,
        )
        self.endpoints = Endpoints(self._http)
        self.event_types = EventTypes(self._http)
        self.keys = Keys(self._http)
        self.tenants = Tenants(self._http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give its connections back."""
        self._http.close()

    @property
    def url(self) -> str:
        """Where it is."""
        return self._http.url

    # --- events

    def send(
        self,
        type: str,  # noqa: A002 - the API's own word
        data: Any,
        *,
        id: str | None = None,  # noqa: A002
        idempotency_key: str | None = None,
        source: str | None = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        deliver_at: datetime | None = None,
    ) -> Sent:
        """Submit an event; when this returns, it is not lost any more. Bytes as `data` are JSON and go out as they are.

        Without `id` and `idempotency_key` a key is made up, so that repetitions after a lost answer store it once. That
        is true of this call only: a program that may crash and begin again gives an id or a key of its own.
        """
        event = NewEvent(
            type=type, data=data, id=id, idempotency_key=idempotency_key, source=source, metadata=metadata,
            headers=headers, deliver_at=deliver_at,
        )  # fmt: skip
        return submitting.send_one(self._http, event)

    def send_batch(self, events: Iterable[NewEvent | Mapping[str, Any]]) -> list[BatchResult]:
        """Submit any number of events, a thousand at a time; one result for each, in their order. A refused one does
        not keep the others back.

        When Relay cannot be reached in the midst of it, the error's `content["results"]` holds those that there are.
        """
        done: list[BatchResult] = []
        try:
            for results in submitting.send_many(self._http, events):
                done += results
        except RelayError as error:
            error.content = {**error.content, "results": done}
            raise
        return done

    def send_each(self, events: Iterable[NewEvent | Mapping[str, Any]]) -> Iterator[BatchResult]:
        """As `send_batch`, for more than fits in memory: each batch is sent when its first result is asked for."""
        for results in submitting.send_many(self._http, events):
            yield from results

    def events(self, *, limit: int | None = None, **filters: Any) -> Iterator[EventItem]:
        """The tenant's events, newest first, without payloads. Filters: `type`, `since`, `until`, `status` (with a
        delivery that is so now)."""
        return items(self._http, "/v1/events", EventItem, filters, limit)

    def event(self, event_id: str) -> Event:
        """One event with its payload."""
        answer = self._http.get(f"/v1/events/{path_of(event_id)}")
        return replace(answer.read(Event), payload=bytes(answer.read(_Payload).data))

    def event_deliveries(self, event_id: str, *, limit: int | None = None) -> Iterator[DeliveryItem]:
        """One delivery for each endpoint that wanted the event."""
        return items(self._http, f"/v1/events/{path_of(event_id)}/deliveries", DeliveryItem, {}, limit)

    def event_attempts(self, event_id: str, *, limit: int | None = None) -> Iterator[Attempt]:
        """Every request that was made for the event, the oldest of each operation first."""
        return items(self._http, f"/v1/events/{path_of(event_id)}/attempts", Attempt, {}, limit)

    def replay_event(self, event_id: str, *, endpoint_ids: Sequence[str] | None = None) -> list[Replayed]:
        """Deliver it once more wherever its delivery is over, or to these endpoints only, which had it: what came of
        each delivery."""
        body = None if endpoint_ids is None else {"endpoint_ids": list(endpoint_ids)}
        return self._http.send("POST", f"/v1/events/{path_of(event_id)}/replay", body).read(_Replays).items

    def expunge_event(self, event_id: str, *, reason: str) -> EventItem:
        """Remove its content for good. That it was there, what became of it, and the reason stay on record."""
        return self._http.send("POST", f"/v1/events/{path_of(event_id)}/expunge", {"reason": reason}).read(EventItem)

    # --- deliveries

    def deliveries(self, *, limit: int | None = None, **filters: Any) -> Iterator[DeliveryItem]:
        """The tenant's deliveries, newest first. Filters: `event_id`, `endpoint_id`, `status`, `since`, `until`.

        Limit: no index finds a status that few deliveries have; give `since` with it where there are many.
        """
        return items(self._http, "/v1/deliveries", DeliveryItem, filters, limit)

    def delivery(self, delivery_id: str) -> Delivery:
        """A delivery's whole life."""
        return self._http.get(f"/v1/deliveries/{path_of(delivery_id)}").read(Delivery)

    def cancel(self, delivery_id: str) -> Delivery:
        """Send nothing more of it. `Conflict` when it is over already."""
        return self._http.send("POST", f"/v1/deliveries/{path_of(delivery_id)}/cancel").read(Delivery)

    def replay_delivery(self, delivery_id: str) -> Delivery:
        """Deliver it once more, under the same `webhook-id`. `Conflict` while it goes on or is unknown."""
        return self._http.send("POST", f"/v1/deliveries/{path_of(delivery_id)}/replay").read(Delivery)

    def replay(self, id: str) -> Delivery | list[Replayed]:  # noqa: A002
        """`replay_delivery` for the id of a delivery, otherwise `replay_event`."""
        return self.replay_delivery(id) if _DELIVERY.fullmatch(id) else self.replay_event(id)

    def move_aside(self, delivery_id: str, reason: str) -> Delivery:
        """Let a delivery to an ordered endpoint leave its line."""
        path = f"/v1/deliveries/{path_of(delivery_id)}/move-aside"
        return self._http.send("POST", path, {"reason": reason}).read(Delivery)

    # --- operations

    def operations(self, *, status: str | None = None, limit: int | None = None) -> Iterator[OperationItem]:
        """The tenant's operations, newest first; with the status `unknown`, those that somebody has to settle."""
        return items(self._http, "/v1/operations", OperationItem, {"status": status}, limit)

    def operation(self, operation_id: str) -> Operation:
        """One operation with all that is known about it."""
        return self._http.get(f"/v1/operations/{path_of(operation_id, slashes=True)}").read(Operation)

    def resolve(
        self,
        operation_id: str,
        decision: Literal["succeeded", "failed", "retry"],
        reason: str,
        *,
        revision: int | None = None,
    ) -> Operation:
        """Settle an unknown operation by what you found out. `revision` is the one that you looked at: `Conflict`, with
        `current`, when it has changed since. None: the one that there is now, whatever it is."""
        seen = self.operation(operation_id).revision if revision is None else revision
        path = f"/v1/operations/{path_of(operation_id, slashes=True)}/resolve"
        body = {"decision": decision, "reason": reason, "revision": seen}
        return self._http.send("POST", path, body).read(Operation)

    def query(self, operation_id: str) -> Asked:
        """Ask the receiver now what became of an unknown operation. `Conflict` when there is nothing to ask."""
        return self._http.send("POST", f"/v1/operations/{path_of(operation_id, slashes=True)}/query").read(Asked)

    # --- jobs

    def recover(
        self,
        endpoint_id: str | None = None,
        *,
        since: datetime,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        status: Sequence[str] | None = None,
        per_second: int | None = None,
        dry_run: bool = False,
    ) -> Job:
        """Replay what failed (or what `status` says) since a time, to one endpoint or to all: a job. `dry_run`: count,
        and change nothing."""
        path = "/v1/deliveries/recover" if endpoint_id is None else f"/v1/endpoints/{path_of(endpoint_id)}/recover"
        given = {
            "since": since,
            "until": until,
            "types": None if types is None else list(types),
            "status": None if status is None else list(status),
            "per_second": per_second,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return self._http.send("POST", path, {**body, "dry_run": dry_run}).read(Job)

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[Job]:
        """The tenant's jobs, newest first. Filters: `kind`, `status`."""
        return items(self._http, "/v1/jobs", Job, filters, limit)

    def job(self, job_id: str) -> Job:
        """How far a job is."""
        return self._http.get(f"/v1/jobs/{path_of(job_id)}").read(Job)

    def cancel_job(self, job_id: str) -> Job:
        """Stop a job where it stands; what it has done stays done."""
        return self._http.send("POST", f"/v1/jobs/{path_of(job_id)}/cancel").read(Job)

    def wait_for(
        self,
        job: Job | str,
        *,
        timeout: float | None = None,
        every: float = 0.5,
        seen: Callable[[Job], object] | None = None,
    ) -> Job:
        """The job when it has ended, whatever its status. `seen` gets it each time that it was looked at. TimeoutError
        after `timeout` seconds, and the job goes on."""
        job_id = job if isinstance(job, str) else job.id
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self.job(job_id)
            if seen is not None:
                seen(now)
            if now.ended:
                return now
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"{job_id} is {now.status} after {timeout} s")
            time.sleep(every)

    # --- the whole

    def stats(self) -> Stats:
        """How much is due, in flight and unknown, and how the endpoints are."""
        return self._http.get("/v1/stats").read(Stats)
