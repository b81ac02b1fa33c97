"""What receivers say about operations outside of an attempt's answer, and what is concluded from evidence on record.

Recording and concluding are two steps. A word is recorded whatever the operation is; it moves an operation only while
that is unknown (that a send was taken, also while it is prepared for another one), and nobody is sending it: then, or
when it comes to be so, and never again once it is settled.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from deliveries.dispatch.attempts import storable
from deliveries.dispatch.exhausted import tell_exhausted
from deliveries.dispatch.settling import retry_delay_ms
from deliveries.dispatch.vouching import LATE_EVIDENCE
from deliveries.models import Endpoint, Said, Source
from deliveries.outcomes import EVERY_ROW, Effect
from deliveries.queries import DELIVERIES
from ledger.managers import lease, unknown
from ledger.managers.operation import Proof, Settled
from ledger.outcome import Applied, Rejected
from ledger.statements import in_transaction

__all__ = ["LATE_EVIDENCE", "Said", "Source", "converge", "converge_stretch", "record", "storable"]

log = logging.getLogger("relay.reconcile")

REFUSALS = sorted({row.classification for row in EVERY_ROW if row.effect in {Effect.NOT_TAKEN, Effect.FINAL}})
"""The classifications of attempts that prove by themselves that the receiver did not take the request."""
_FINAL = {row.classification for row in EVERY_ROW if row.effect is Effect.FINAL}
_ANY_NUMBER_OF_SENDS = 2**31 - 1
_PROOFS = {Said.PROCESSED: Proof.ACCEPTED, Said.REJECTED: Proof.FINAL, Said.NEVER_ARRIVED: Proof.NOT_TAKEN}


@dataclass(frozen=True, slots=True)
class _Recorded:
    acknowledgement_id: int


@dataclass(frozen=True, slots=True)
class _KeyRow:
    operation_key: int


@dataclass(frozen=True, slots=True)
class _Evidence:
    operation_key: int
    run_id: uuid.UUID
    revision: int
    attempts: int
    losses: int
    endpoint_id: uuid.UUID
    request_digest: str
    age_s: float
    late_number: int | None
    late_epoch: int | None
    late_owner: str | None
    late_status: int | None
    refused_as: str | None
    acknowledgement_id: int | None
    source: str | None
    said: str | None
    remote_id: str | None
    actor: str | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """How far a patrol of the unknown operations came (0: the end of the key order), and how many it settled."""

    walked_to: int
    walked: int
    converged: int


def record(
    *,
    operation_key: int,
    run_id: uuid.UUID,
    source: Source,
    said: Said,
    remote_id: str | None,
    detail: str,
    actor: str,
    status: int | None,
    message_id: str | None = None,
    sends: int | None = None,
) -> bool:
    """Keep a receiver's word for ever; False when this message is on record already (nothing is written then).

    `message_id`: the receiver's own id of what it sent. `sends`: the operation's `attempts` when the receiver was
    asked; without it, as many as there are now. That nothing arrived is only believed about those.
    """
    with transaction.atomic():
        # Whoever concludes from what is on record does so under the same lock: no word comes in between unseen.
        lease.await_holders([run_id])
        rows = DELIVERIES["acknowledgement.record"].rows(
            _Recorded,
            {
                "operation_key": operation_key,
                "run_id": run_id,
                "source": source.value,
                "said": said.value,
                "message_id": message_id,
                "sends": _ANY_NUMBER_OF_SENDS if sends is None else sends,
                "remote_id": None if remote_id is None else storable(remote_id),
                "detail": storable(detail),
                "actor": actor,
                "http_status": status,
            },
        )
    return bool(rows)


def converge(operation_keys: Sequence[int]) -> dict[int, Applied[Settled] | Rejected]:
    """Settle what is unknown by what is on record, with an answer for each operation about which that is conclusive.

    An acceptance that was reported late ends an operation as succeeded. Otherwise the newest decision of the receiver
    counts: processed (succeeded) or rejected (failed); and where there is none, that it never arrived (prepared again,
    or failed when no tries are left). Otherwise, when every attempt that was ever begun proves that it was not taken,
    the operation is what it would have been had the last of them reported in time. A late refusal of one send proves
    nothing about another one. Neither of these two moves what is quarantined, which is for a person. What is being sent
    at this moment is left alone.
    """
    endpoints: dict[uuid.UUID, Endpoint] = {}
    answers: dict[int, Applied[Settled] | Rejected] = {}
    for candidate in _evidence(operation_keys):
        # Each in a transaction of its own: a short one, whatever the number.
        if candidate.endpoint_id not in endpoints:
            endpoints[candidate.endpoint_id] = Endpoint.objects.get(pk=candidate.endpoint_id)
        answer = in_transaction(partial(_converge, candidate, endpoints[candidate.endpoint_id]))
        if answer is not None:
            answers[candidate.operation_key] = answer
    return answers


def _evidence(operation_keys: Sequence[int]) -> list[_Evidence]:
    return DELIVERIES["acknowledgement.evidence"].rows(
        _Evidence, {"operation_keys": list(operation_keys), "refusals": REFUSALS}
    )


def converge_reported_late(*, batch: int, age_ms: int) -> int:
    """Converge what refused settlements of late have brought evidence about, also of what is prepared; how many moved.

    Only the newest `batch` refusals are looked at. What is missed stays on record: an unknown operation is found by its
    patrol, and a prepared one before it is sent again.
    """
    rows = DELIVERIES["acknowledgement.reported_late"].rows(_KeyRow, {"batch": batch, "age_ms": age_ms})
    answers = converge([row.operation_key for row in rows]) if rows else {}
    return sum(isinstance(answer, Applied) for answer in answers.values())


def converge_stretch(after: int, *, batch: int) -> Stretch:
    """Converge what can be among the first `batch` unknown operations after key `after`."""
    rows = DELIVERIES["acknowledgement.unknown"].rows(_KeyRow, {"after": after, "batch": batch})
    answers = converge([row.operation_key for row in rows]) if rows else {}
    return Stretch(
        walked_to=rows[-1].operation_key if len(rows) == batch else 0,
        walked=len(rows),
        converged=sum(isinstance(answer, Applied) for answer in answers.values()),
    )


def _converge(candidate: _Evidence, endpoint: Endpoint) -> Applied[Settled] | Rejected | None:
    """Under the lock of the run's lease look again at what is on record, and move the operation on by that."""
    lease.await_holders([candidate.run_id])
    for one in _evidence([candidate.operation_key]):
        proof = _proof(one)
        # Quarantined: only that it was taken, the receiver's decision, or a person moves it on.
        if one.losses >= settings.RELAY_POISON_LOSSES and not _is_decided(one):
            return None
        answer = unknown.converge(
            operation_key=one.operation_key,
            revision=one.revision,
            proof=proof,
            retry_ms=retry_delay_ms(endpoint, one.attempts, one.age_s, None) if proof is Proof.NOT_TAKEN else None,
            actor=_by(one),
            evidence=_shown(one),
            remote_id=None if _is_late(one) else one.remote_id,
        )
        tell_exhausted([answer], [endpoint])
        if isinstance(answer, Applied):
            log.info("operation %s is %s: %s", one.operation_key, answer.row.status, _by(one))
        return answer
    return None


def _is_late(one: _Evidence) -> bool:
    return one.late_number is not None


def _is_decided(one: _Evidence) -> bool:
    return _is_late(one) or one.said in {Said.PROCESSED, Said.REJECTED}


def _proof(one: _Evidence) -> Proof:
    if _is_late(one):
        return Proof.ACCEPTED
    if one.said is not None:
        return _PROOFS[Said(one.said)]
    return Proof.FINAL if one.refused_as in _FINAL else Proof.NOT_TAKEN


def _by(one: _Evidence) -> str:
    return LATE_EVIDENCE if _is_late(one) or one.actor is None else one.actor


def _shown(one: _Evidence) -> dict[str, Any]:
    if _is_late(one):
        return {
            "attempt": one.late_number,
            "epoch": one.late_epoch,
            "owner": one.late_owner,
            "http_status": one.late_status,
            "request_digest": one.request_digest,
        }
    if one.said is None:
        return {"attempts": one.attempts, "last": one.refused_as, "request_digest": one.request_digest}
    return {"acknowledgement": one.acknowledgement_id, "source": one.source, "said": one.said}
