"""A small worker, as a process of its own, that does one thing after the other as it is told on its stdin.

    python -m tests.experiments.holder OWNER RUN_ID OPERATION_KEY

Each line is a JSON object: what to `do`, and its arguments. Each is answered with one line on stdout. It keeps in mind
what it was once told (epoch, revision, claim), and presents that with every write, however long it stood still.
"""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import ExitStack
from typing import Any

import django
from django.db import Error as DatabaseError
from django.db import connections, transaction


class Holder:
    """One owner's view of one run."""

    def __init__(self, owner: str, run_id: str, operation_key: str) -> None:
        self.owner = owner
        self.run_id = uuid.UUID(run_id)
        self.operation_key = int(operation_key)
        self.epoch = 0
        self.revision = 0
        self.claimed: Any = None
        self.open = ExitStack()

    def believe(self, epoch: int, revision: int) -> dict[str, Any]:
        """Act under a term that another process of this owner acquired."""
        self.epoch, self.revision = epoch, revision
        return {"answer": "applied"}

    def acquire(self, ttl_ms: int, revision: int) -> dict[str, Any]:
        from ledger.managers import lease

        answer = _told(lease.acquire([self.run_id], owner=self.owner, ttl_ms=ttl_ms)[self.run_id])
        self.epoch, self.revision = answer.get("epoch", 0), revision
        return answer

    def claim(self, ttl_ms: int) -> dict[str, Any]:
        from ledger.managers import operation

        (self.claimed,), _ = operation.claim([self.operation_key], owner=self.owner, ttl_ms=ttl_ms)
        self.epoch, self.revision = self.claimed.epoch, self.claimed.run_revision
        return {"answer": "applied", "epoch": self.epoch}

    def renew(self, ttl_ms: int = 60_000) -> dict[str, Any]:
        from ledger.managers import lease

        return _told(lease.renew([(self.run_id, self.epoch)], owner=self.owner, ttl_ms=ttl_ms)[self.run_id])

    def release(self) -> dict[str, Any]:
        from ledger.managers import lease

        return _told(lease.release([(self.run_id, self.epoch)], owner=self.owner)[self.run_id])

    def save(self, value: Any) -> dict[str, Any]:
        from ledger.managers import run
        from ledger.managers.run import Held

        held = Held(self.run_id, self.epoch, self.revision)
        answer = _told(run.save_checkpoint([held], [value], owner=self.owner)[self.run_id])
        if answer["answer"] == "applied":
            self.revision = answer["revision"]
        return answer

    def settle(self, under: dict[str, Any] | None = None) -> dict[str, Any]:
        """The receiver accepted it. `under`: present the term of another run with it."""
        from dataclasses import replace

        from ledger.managers import operation
        from ledger.managers.operation import Proof, Settlement

        claim = self.claimed
        if under is not None:
            claim = replace(
                claim, run_id=uuid.UUID(under["run_id"]), epoch=under["epoch"], run_revision=under["revision"]
            )
        settlement = Settlement(claim, Proof.ACCEPTED, None, None, evidence={"http_status": 200})
        return _told(operation.settle([settlement], owner=self.owner)[self.operation_key])

    def cancel(self) -> dict[str, Any]:
        from ledger.managers import run

        return _told(run.cancel([self.run_id])[self.run_id])

    def begin(self) -> dict[str, Any]:
        self.open.enter_context(transaction.atomic())
        return {"answer": "applied"}

    def commit(self) -> dict[str, Any]:
        self.open.close()
        return {"answer": "applied"}


def _told(answer: Any) -> dict[str, Any]:
    from ledger.outcome import Rejected

    if isinstance(answer, Rejected):
        return {"answer": answer.reason.value, "seen_owner": answer.seen_owner, "seen_epoch": answer.seen_epoch}
    told = {name: getattr(answer.row, name, None) for name in ("epoch", "revision", "status")}
    return {"answer": "applied", **{name: value for name, value in told.items() if value is not None}}


def main() -> None:
    django.setup()
    holder = Holder(*sys.argv[1:])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(holder, asked.pop("do"))(**asked)
        except DatabaseError as error:
            answer = {"answer": "error", "error": f"{type(error).__name__}: {error}"}
            connections.close_all()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
