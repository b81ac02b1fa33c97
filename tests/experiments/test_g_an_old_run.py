"""G: a callback of an old run arrives when a new run exists: the new run does not move."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from standardwebhooks.webhooks import Webhook

from deliveries import signing
from deliveries.models import Acknowledgement
from ledger.managers import lease, operation, task, unknown
from ledger.managers.operation import Proof, Settlement
from ledger.models import Task
from ledger.outcome import Applied
from ledger.statements import in_transaction
from ledger.states import Decision, RunReason
from tests.experiments.worker import Worker, state, wait_for_the_end_of_the_lease
from tests.support import ledger_rows as rows
from tests.support.deliveries import Watched, endpoint, events, submitted
from tests.support.ledger_rows import OWNER, RIVAL, TTL_MS, Planted
from tests.support.web import Web

pytestmark = pytest.mark.usefixtures("emptied")


def sent(one: Watched, proof: Proof | None) -> None:
    """It was claimed and sent; `proof` of what became of it, or None while it is on its way."""

    def work() -> None:
        (claimed,), _ = operation.claim([one.operation_key], owner=OWNER, ttl_ms=TTL_MS)
        if proof is not None:
            operation.settle([Settlement(claimed, proof, None, None)], owner=OWNER)

    in_transaction(work)


def replayed(one: Watched) -> Watched:
    """An old run whose outcome was unknown, which a person called failed, and its replay."""
    sent(one, Proof.AMBIGUOUS)
    seen = one.operation.revision
    decided = in_transaction(
        lambda: unknown.resolve(
            operation_key=one.operation_key, actor="user:sam", decision=Decision.FAILED, reason="They say no.",
            revision=seen,
        )
    )  # fmt: skip
    assert isinstance(decided, Applied)
    task_id = Task.objects.get(active_run_id=one.run_id).task_id
    opened = in_transaction(lambda: task.open_run([task_id], reason=RunReason.REPLAY))[task_id]
    assert isinstance(opened, Applied)
    return Watched(one.event_id, opened.row.run_id, opened.row.operation_key)


def called_back(web: Web, secret: str, operation_id: str, run_id: uuid.UUID) -> requests.Response:
    """The receiver says, signed, that it processed an operation."""
    body = json.dumps({"operation": operation_id, "run": str(run_id), "outcome": "processed"})
    message_id, now = f"msg_{uuid.uuid4().hex}", int(time.time())
    signed = _sign(secret, message_id, now, body)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(now), "webhook-signature": signed}
    return requests.post(
        f"{web.url}/v1/acknowledgements", body, headers={**headers, "content-type": "application/json"}, timeout=10
    )


def _sign(secret: str, message_id: str, at: int, body: str) -> str:
    from datetime import UTC, datetime

    key = signing.derived(signing.secret_bytes(secret), signing.ACKNOWLEDGEMENT)
    return str(Webhook(key).sign(message_id, datetime.fromtimestamp(at, UTC), body))


def test_a_receivers_word_about_an_old_run_is_kept_and_moves_neither_run(tenant: str) -> None:
    _, secret = endpoint(tenant, "http://127.0.0.1:9/")
    with Web() as web:
        for proof in ("prepared", None, Proof.AMBIGUOUS):
            (old,) = submitted(events(tenant))
            old_id = old.operation_id
            new = replayed(old)
            if proof != "prepared":
                sent(new, proof)  # type: ignore[arg-type]
            before = old.rows(), new.rows()
            answer = called_back(web, secret, old_id, old.run_id)
            assert answer.status_code == 202, answer.content
            assert answer.json()["moved"] is False
            assert (old.rows(), new.rows()) == before
            (kept,) = Acknowledgement.objects.filter(operation_key=old.operation_key)
            assert (kept.said, kept.run_id) == ("processed", old.run_id)
            assert not Acknowledgement.objects.filter(operation_key=new.operation_key).exists()

        mixed = called_back(web, secret, old_id, new.run_id)
        assert mixed.status_code in (400, 422), "a word about one run says nothing about another"
        assert (old.rows(), new.rows()) == before

        about_the_new = called_back(web, secret, new.operation_id, new.run_id)
        assert about_the_new.json()["moved"] is True, "and this is what its own would have done"
        assert new.status == "succeeded"


@dataclass
class Seen:
    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    answer: str


def experiment(mutant: str | None = None) -> Seen:
    """A worker that lost the new run, and holds the old one's lease, settles the new one's operation with that."""
    old = rows.plant("failed_final", epoch=0)
    opened = in_transaction(lambda: task.open_run([old.task_id], reason=RunReason.REPLAY))[old.task_id]
    assert isinstance(opened, Applied)
    new = Planted(old.task_id, opened.row.run_id, opened.row.operation_key, old.event_id, old.endpoint_id, old.digest)
    with Worker(OWNER, new, mutant=mutant) as worker:
        worker.ask("claim", ttl_ms=1_000)
        wait_for_the_end_of_the_lease(new)
        in_transaction(lambda: lease.acquire([new.run_id], owner=RIVAL, ttl_ms=TTL_MS))
        held = in_transaction(lambda: lease.acquire([old.run_id], owner=OWNER, ttl_ms=TTL_MS))[old.run_id]
        assert isinstance(held, Applied)
        before = state(new)
        term = {"run_id": str(old.run_id), "epoch": held.row.epoch, "revision": rows.run(old)["revision"]}
        answer = worker.ask("settle", under=term)["answer"]
    return Seen(before, state(new), answer)


def test_the_term_of_an_old_run_counts_for_nothing_in_the_new_one() -> None:
    seen = experiment()
    assert seen.answer == "missing"
    assert seen.after == seen.before


def test_without_the_run_in_the_condition_the_old_runs_term_would_move_the_new_run() -> None:
    seen = experiment("settle: any run")
    assert seen.after["operation"]["status"] == "succeeded"
    assert seen.after["run"]["status"] == "succeeded"
