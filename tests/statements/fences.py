"""The fence matrix as data: for each statement that writes a run, lease or operation, what each fault leads to."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from ledger.managers import lease, operation, run, task, unknown
from ledger.managers.operation import Plan, Proof, Settlement
from ledger.managers.run import Held
from ledger.managers.unknown import Retry
from ledger.outcome import Applied, Reason, Rejected
from ledger.states import Decision, RunReason
from tests.support import ledger_rows as rows
from tests.support.ledger_rows import OWNER, RIVAL, STRANGER, TTL_MS, Planted, from_now

NOWHERE = 2**60
LOSSES_BELOW = 3


class Fault(StrEnum):
    """What is wrong with a write."""

    NONE = "current"
    STALE_EPOCH = "taken over by another under the next epoch"
    OLDER_EPOCH = "the same owner under an older epoch"
    OTHER_OWNER = "another owner under the current epoch"
    STALE_REVISION = "a stale revision"
    EXPIRED = "an expired lease"
    WRONG_STATUS = "a status from which the move is not legal"
    MISSING = "no such row"


class Answer(StrEnum):
    """What a statement answers when it is not a reason."""

    APPLIED = "applied"
    ABSENT = "in no answer, nothing changed"


A, X = Answer.APPLIED, Answer.ABSENT
F = Fault
Expected = Reason | Answer


@dataclass(frozen=True, slots=True)
class Presented:
    """What a writer believes."""

    planted: Planted
    run_id: uuid.UUID
    task_id: uuid.UUID
    operation_key: int
    owner: str
    epoch: int
    revision: int
    run_revision: int
    claim: operation.Claimed | None


Written = Applied[Any] | Rejected | Answer


@dataclass(frozen=True, slots=True)
class Fence:
    """One statement: a state in which its write is current, the write, and what every fault leads to."""

    plant: Callable[[], Planted]
    write: Callable[[Presented], Written]
    wrong: Callable[[Planted], None]
    expected: Mapping[Fault, Expected]
    revision_of: Literal["run", "operation"] = "run"
    sees: Literal["run", "operation"] | None = None
    """Whose revision and status a refusal tells; None: the lease only."""
    recorded: bool = False
    """A refusal leaves a fenced write."""
    parks: bool = False
    """A refusal moves the queue's pointer, and nothing else."""


def present(planted: Planted, owner: str = OWNER) -> Presented:
    """What `owner` knows of the planted rows at this moment."""
    of, held, seen = rows.run(planted), rows.lease(planted), rows.operation(planted)
    claim = rows.claim_of(planted) if seen["dispatch_owner"] else None
    return Presented(
        planted, planted.run_id, planted.task_id, planted.operation_key, owner, held["epoch"], seen["revision"],
        of["revision"], claim,
    )  # fmt: skip


def inflict(fault: Fault, fence: Fence, given: Presented) -> Presented:
    """Make `fault` true: by moving the rows on under the writer, or by what the writer presents."""
    planted, key = given.planted, {"run_id": given.planted.run_id}
    held = rows.lease(planted)
    match fault:
        case Fault.STALE_EPOCH:
            rows.change("ledger_lease", key, owner=RIVAL, epoch=held["epoch"] + 1, expires_at=from_now(TTL_MS))
        case Fault.OLDER_EPOCH:
            rows.change("ledger_lease", key, owner=OWNER, epoch=held["epoch"] + 1, expires_at=from_now(TTL_MS))
        case Fault.OTHER_OWNER:
            return replace(given, owner=STRANGER)
        case Fault.STALE_REVISION if fence.revision_of == "run":
            rows.change("ledger_run", key, revision=given.run_revision + 1)
        case Fault.STALE_REVISION:
            rows.change("ledger_operation", {"operation_key": planted.operation_key}, revision=given.revision + 1)
        case Fault.EXPIRED:
            rows.change("ledger_lease", key, owner=held["owner"] or OWNER, expires_at=from_now(-1000))
        case Fault.WRONG_STATUS:
            fence.wrong(planted)
        case Fault.MISSING:
            nobody = uuid.uuid4()
            claim = replace(given.claim, run_id=nobody, operation_key=NOWHERE) if given.claim else None
            return replace(given, run_id=nobody, task_id=nobody, operation_key=NOWHERE, claim=claim)
        case Fault.NONE:
            pass
    return given


def _run(status: str) -> Callable[[Planted], None]:
    return lambda planted: rows.change("ledger_run", {"run_id": planted.run_id}, status=status)


def _operation(status: str, **columns: Any) -> Callable[[Planted], None]:
    """Somebody moved it on: no claim, no time at which it is due."""
    moved = {"status": status, "dispatch_owner": None, "dispatch_epoch": None, "dispatch_until": None, **columns}
    return lambda planted: rows.change("ledger_operation", {"operation_key": planted.operation_key}, **moved)


def _held(given: Presented) -> list[Held]:
    return [Held(given.run_id, given.epoch, given.run_revision)]


def _settle(given: Presented) -> Written:
    assert given.claim is not None
    claim = replace(given.claim, epoch=given.epoch, revision=given.revision, run_revision=given.run_revision)
    settlement = Settlement(claim, Proof.ACCEPTED, None, None, {"http_status": 200}, None, {"head": "200 OK"})
    return operation.settle([settlement], owner=given.owner)[given.operation_key]


def _plan(given: Presented) -> Written:
    planned = Plan(
        given.run_id, given.epoch, given.run_revision, "notify", 1, "webhook", b"\x01" * 32, given.planted.event_id
    )
    return operation.plan([planned], owner=given.owner)[given.run_id, "notify", 1]


def _plan_next(given: Presented) -> Written:
    """A changed effect, in place of the one that is prepared."""
    planned = Plan(
        given.run_id, given.epoch, given.run_revision, "deliver", 2, "webhook", b"\x02" * 32, given.planted.event_id
    )
    return operation.plan([planned], owner=given.owner)[given.run_id, "deliver", 2]


def _resolve(given: Presented) -> Written:
    return unknown.resolve(
        operation_key=given.operation_key, actor="user:sam", decision=Decision.SUCCEEDED, reason="I asked them.",
        revision=given.revision,
    )  # fmt: skip


def _converge(given: Presented) -> Written:
    return unknown.converge(
        operation_key=given.operation_key, revision=given.revision, proof=Proof.ACCEPTED, retry_ms=None, actor="query",
        evidence={"answer": "processed"},
    )  # fmt: skip


def _claim(given: Presented) -> Written:
    claimed, refused = operation.claim([given.operation_key], owner=given.owner, ttl_ms=TTL_MS)
    if given.operation_key in refused:
        return Rejected(refused[given.operation_key])
    return Applied(claimed[0]) if claimed else Answer.ABSENT


def _expire(given: Presented) -> Written:
    expired = unknown.expire_claims(batch=10, owner="reconciler")
    return Applied(expired[0]) if expired else Answer.ABSENT


def _schedule(given: Presented) -> Written:
    wish = Retry(given.operation_key, given.revision, 1000, rows.HOUR_MS)
    scheduled = unknown.schedule_retry([wish], losses_below=LOSSES_BELOW)
    return Applied(scheduled[0]) if scheduled else Answer.ABSENT


def _finish(given: Presented) -> Written:
    patrolled = run.finish_left_behind(uuid.UUID(int=0), batch=10, owner="reconciler")
    return Applied(patrolled) if patrolled.finished else Answer.ABSENT


def _expect(
    stale: Expected, older: Expected, other: Expected, revision: Expected, expired: Expected, wrong: Expected,
    missing: Expected,
) -> dict[Fault, Expected]:  # fmt: skip
    return {
        F.NONE: A, F.STALE_EPOCH: stale, F.OLDER_EPOCH: older, F.OTHER_OWNER: other, F.STALE_REVISION: revision,
        F.EXPIRED: expired, F.WRONG_STATUS: wrong, F.MISSING: missing,
    }  # fmt: skip


LOST, HELD, CONFLICT = Reason.LEASE_LOST, Reason.LEASE_HELD, Reason.CONFLICT
WRONG, NO_ROW, CLAIMED = Reason.WRONG_STATUS, Reason.MISSING, Reason.CLAIMED
HOLDER = _expect(LOST, LOST, LOST, CONFLICT, LOST, WRONG, NO_ROW)
"""Only the current term may write, on the revision that it saw."""
LEASE = _expect(LOST, LOST, LOST, A, LOST, A, NO_ROW)
"""A lease knows no revision and no status."""
EVIDENCE = _expect(CLAIMED, CLAIMED, A, CONFLICT, A, WRONG, NO_ROW)
"""It takes a term of its own, where nobody holds one."""
CONTROL = _expect(A, A, A, A, A, WRONG, NO_ROW)
"""The control plane needs no lease."""


def _running(**columns: Any) -> Callable[[], Planted]:
    return lambda: rows.plant("prepared", run_status="running", owner=OWNER, **columns)


def _settled_running() -> Planted:
    return rows.plant("succeeded", run_status="running", owner=OWNER)


def _plain(status: str, **columns: Any) -> Callable[[], Planted]:
    return lambda: rows.plant(status, **columns)


FENCES: dict[str, Fence] = {
    "lease.acquire": Fence(
        _plain("prepared"), lambda g: lease.acquire([g.run_id], owner=g.owner, ttl_ms=TTL_MS)[g.run_id],
        _run("succeeded"), _expect(HELD, HELD, A, A, A, A, NO_ROW),
    ),
    "lease.renew": Fence(
        _running(), lambda g: lease.renew([(g.run_id, g.epoch)], owner=g.owner, ttl_ms=TTL_MS)[g.run_id],
        _run("succeeded"), LEASE, recorded=True,
    ),
    "lease.release": Fence(
        _running(), lambda g: lease.release([(g.run_id, g.epoch)], owner=g.owner)[g.run_id],
        _run("succeeded"), {**LEASE, F.EXPIRED: A}, recorded=True,
    ),
    "run.start": Fence(
        lambda: rows.plant("prepared", owner=OWNER), lambda g: run.start(_held(g), owner=g.owner)[g.run_id],
        _run("running"), HOLDER, sees="run", recorded=True,
    ),
    "run.save_checkpoint": Fence(
        _running(), lambda g: run.save_checkpoint(_held(g), [{"page": 2}], owner=g.owner)[g.run_id],
        _run("succeeded"), HOLDER, sees="run", recorded=True,
    ),
    "run.succeed": Fence(
        _settled_running, lambda g: run.succeed(_held(g), owner=g.owner)[g.run_id],
        _run("cancelled"), HOLDER, sees="run", recorded=True,
    ),
    "run.fail": Fence(
        _settled_running, lambda g: run.fail(_held(g), owner=g.owner)[g.run_id],
        _run("succeeded"), HOLDER, sees="run", recorded=True,
    ),
    "run.cancel": Fence(
        _plain("prepared"), lambda g: run.cancel([g.run_id])[g.run_id], _run("succeeded"), CONTROL, sees="run",
    ),
    "run.finish_left_behind": Fence(
        _plain("succeeded", run_status="running"), _finish, _run("succeeded"), _expect(X, X, A, A, A, X, A),
    ),
    "task.open_run": Fence(
        _plain("failed_final"), lambda g: task.open_run([g.task_id], reason=RunReason.REPLAY)[g.task_id],
        _run("running"), CONTROL,
    ),
    "operation.claim": Fence(
        _plain("prepared"), _claim, _operation("succeeded", due_at=None), _expect(HELD, HELD, A, A, A, WRONG, X),
        revision_of="operation", parks=True,
    ),
    "operation.settle": Fence(
        _plain("dispatching"), _settle, _operation("unknown", ambiguous=True), HOLDER, revision_of="operation",
        sees="operation", recorded=True,
    ),
    "unknown.expire_claims": Fence(
        _plain("dispatching", lease_ms=-1000, until_ms=-1000), _expire, _operation("unknown", ambiguous=True),
        _expect(A, A, A, A, A, X, A), revision_of="operation", parks=True,
    ),
    "unknown.schedule_retry": Fence(
        _plain("unknown"), _schedule, _operation("succeeded"), _expect(A, A, A, X, A, X, X), revision_of="operation",
    ),
    "unknown.resolve": Fence(
        _plain("unknown"), _resolve, _operation("succeeded"), EVIDENCE, revision_of="operation", sees="operation",
    ),
    "unknown.converge": Fence(
        _plain("unknown"), _converge, _operation("failed_final"), EVIDENCE, revision_of="operation", sees="operation",
    ),
    "operation.plan": Fence(
        _running(), _plan, _run("pending"), HOLDER, sees="run", recorded=True,
    ),
    "operation.plan (the next version)": Fence(
        _running(), _plan_next, _run("pending"), HOLDER, sees="run", recorded=True,
    ),
}  # fmt: skip


def statement_of(name: str) -> str:
    """The statement of an entry: several entries may be about one, told apart in parentheses."""
    return name.partition(" ")[0]


UNFENCED = {"task.open": "it creates rows that nobody can hold yet"}
