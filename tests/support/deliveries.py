"""What process tests start from, and what they look at: endpoints, events, and what the ledger says of each."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from deliveries import accepting, ids, submit
from deliveries.endpoints import Changes, create
from deliveries.models import Attempt, Endpoint, Tenant
from deliveries.submit import Accepted, NewEvent
from ledger import identity
from ledger.models import Dispatch, FencedWrite, Lease, Operation, Run, Takeover, Task
from ledger.statements import in_transaction

EVERY_SECOND = [1] * 10
TYPE = "invoice.paid"


@dataclass(frozen=True, slots=True)
class Watched:
    """One event going to one endpoint."""

    event_id: uuid.UUID
    run_id: uuid.UUID
    operation_key: int

    @property
    def webhook_id(self) -> str:
        return ids.render(ids.EVENT, self.event_id)

    @property
    def operation(self) -> Operation:
        return Operation.objects.get(operation_key=self.operation_key)

    @property
    def operation_id(self) -> str:
        operation = self.operation
        tenant_id = Task.objects.get(active_run_id=self.run_id).tenant_id
        return identity.compose(tenant_id, self.run_id, operation.step_id, operation.effect_version)

    @property
    def status(self) -> str:
        return self.operation.status

    @property
    def run(self) -> Run:
        return Run.objects.get(run_id=self.run_id)

    @property
    def lease(self) -> Lease:
        return Lease.objects.get(run_id=self.run_id)

    @property
    def owner(self) -> str:
        """Who holds the lease; an error when nobody does."""
        owner = self.lease.owner
        assert owner is not None, "nobody holds the lease"
        return owner

    @property
    def pointer(self) -> Dispatch:
        return Dispatch.objects.get(operation_id=self.operation_key)

    @property
    def attempts(self) -> list[Attempt]:
        return list(Attempt.objects.filter(operation_key=self.operation_key).order_by("number"))

    @property
    def takeovers(self) -> list[Takeover]:
        return list(Takeover.objects.filter(run_id=self.run_id).order_by("epoch"))

    @property
    def fenced_writes(self) -> list[FencedWrite]:
        return list(FencedWrite.objects.filter(run_id=self.run_id).order_by("fenced_write_id"))

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every column of run, lease and operation, for a comparison of before and after."""
        return {
            "run": Run.objects.filter(run_id=self.run_id).values().get(),
            "lease": Lease.objects.filter(run_id=self.run_id).values().get(),
            "operation": Operation.objects.filter(operation_key=self.operation_key).values().get(),
        }


def succeeded(one: Watched) -> bool:
    """Whether it was delivered."""
    return one.status == "succeeded"


def tenant() -> str:
    """A new tenant, so that tests that share a database do not see each other."""
    return Tenant.objects.create(tenant_id=f"t-{uuid.uuid4().hex[:12]}", name="A test").tenant_id


def endpoint(tenant_id: str, url: str, **changes: Any) -> tuple[Endpoint, str]:
    """A new endpoint, tried again every second, and its signing secret."""
    asked: Changes = {"url": url, "retry_schedule": EVERY_SECOND, "retry_jitter": 0.0, **changes}  # type: ignore[typeddict-item]
    return create(tenant_id, asked)


def events(tenant_id: str, count: int = 1, *, type: str = TYPE, **fields: Any) -> list[NewEvent]:  # noqa: A002
    """Events to submit."""
    return [NewEvent(tenant_id, type, json.dumps({"number": number}).encode(), **fields) for number in range(count)]


def submitted(wanted: list[NewEvent]) -> list[Watched]:
    """Submit events as the API does: each to as many endpoints as want it."""
    return _watched(submit.submit(wanted))


def submitted_in_silence(wanted: list[NewEvent]) -> list[Watched]:
    """The same commit without its wake-up: as when a process dies between the two."""
    event_ids = [ids.time_ordered() for _ in wanted]
    digests = [submit.digest_of(event) for event in wanted]
    return _watched(in_transaction(lambda: accepting.accept(wanted, event_ids, digests)))


def _watched(answers: list[Any]) -> list[Watched]:
    assert all(isinstance(answer, Accepted) for answer in answers)
    event_ids = [answer.event_id for answer in answers]
    place = {event_id: at for at, event_id in enumerate(event_ids)}
    tasks = {task.active_run_id: task.event_id for task in Task.objects.filter(event_id__in=event_ids)}
    found = Operation.objects.filter(run_id__in=tasks).order_by("operation_key")
    watched = [Watched(tasks[one.run_id], one.run_id, one.operation_key) for one in found]
    return sorted(watched, key=lambda one: (place[one.event_id], one.operation_key))


def unsettled(tenant_id: str) -> int:
    """How many operations of a tenant are not settled."""
    return Dispatch.objects.filter(tenant_id=tenant_id).count()


def attempts_of(tenant_id: str) -> int:
    """How many attempts are on record for a tenant."""
    keys = Operation.objects.filter(run__task__tenant_id=tenant_id).values("operation_key")
    return Attempt.objects.filter(operation_key__in=keys).count()
