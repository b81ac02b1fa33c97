"""Settle: write down what became of attempts, in batches, and take the answers row by row."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from deliveries import failpoints, outcomes, retry
from deliveries.dispatch.claiming import Delivery
from deliveries.dispatch.vouching import vouched
from deliveries.failpoints import Point
from deliveries.models import Endpoint
from deliveries.outcomes import Effect, Judgement
from deliveries.queries import DELIVERIES
from deliveries.transport.base import Outcome
from ledger.managers import lease, operation
from ledger.managers.operation import Claimed, Proof, Settled, Settlement
from ledger.outcome import Applied, Rejected
from ledger.statements import in_transaction

log = logging.getLogger("relay.dispatch")

PROOFS = {
    Effect.ACCEPTED: Proof.ACCEPTED,
    Effect.NOT_TAKEN: Proof.NOT_TAKEN,
    Effect.FINAL: Proof.FINAL,
    Effect.AMBIGUOUS: Proof.AMBIGUOUS,
}
_REFUSALS = frozenset({Effect.NOT_TAKEN, Effect.FINAL})
_RNG = random.Random()  # noqa: S311 (jitter, not secrecy)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as it is recorded; the columns of the table."""

    operation_key: int
    number: int
    epoch: int
    owner: str
    url: str
    started_at: datetime
    ended_at: datetime | None
    verdict: str
    classification: str
    http_status: int | None
    response_headers: dict[str, str] | None
    response_body: bytes | None
    error: str
    evidence: dict[str, Any] | None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a dispatcher has to say about a delivery: an outcome, or (None) that it was never sent."""

    delivery: Delivery
    outcome: Outcome | None
    ended_at: float


@dataclass(frozen=True, slots=True)
class _Recorded:
    attempt_id: int


@dataclass(frozen=True, slots=True)
class _Written:
    operation_key: int
    number: int


def record(rows: Sequence[AttemptRow]) -> None:
    """Write attempts. One that is on record already is left alone, but for what a lost worker could not say."""
    DELIVERIES["attempt.record"].rows(
        _Recorded,
        {
            "operation_keys": [row.operation_key for row in rows],
            "numbers": [row.number for row in rows],
            "epochs": [row.epoch for row in rows],
            "owners": [row.owner for row in rows],
            "urls": [row.url for row in rows],
            "started_ats": [row.started_at for row in rows],
            "ended_ats": [row.ended_at for row in rows],
            "verdicts": [row.verdict for row in rows],
            "classifications": [row.classification for row in rows],
            "http_statuses": [row.http_status for row in rows],
            "response_headers": [_json(row.response_headers) for row in rows],
            "response_bodies": [row.response_body for row in rows],
            "errors": [row.error for row in rows],
            "evidences": [_json(row.evidence) for row in rows],
            "lates": [row.late for row in rows],
        },
    )


def retry_delay_ms(endpoint: Endpoint, attempts: int, age_s: float, retry_after_s: float | None) -> int | None:
    """Milliseconds to the next attempt after number `attempts`; None when schedule or maximum age allow none."""
    delay = retry.delay_seconds(
        endpoint.retry_schedule, attempts, jitter=endpoint.retry_jitter, rng=_RNG, retry_after=retry_after_s
    )
    if delay is None or not retry.within_age(age_s, delay, endpoint.retry_max_age_hours):
        return None
    return round(delay * 1000)


def window_ms(endpoint: Endpoint) -> int | None:
    """For how long the endpoint drops duplicates; None when it does not promise to."""
    return endpoint.window_hours * 3_600_000 if endpoint.idempotent else None


def settle(reports: Sequence[Report], *, owner: str) -> dict[int, Applied[Settled] | Rejected]:
    """Settle a batch, record its attempts, and tell the endpoints what their receivers asked for: one commit.

    A refused row leaves its evidence on the fenced write and on its attempt, marked late; it moves nothing. What this
    attempt proves not taken, while it is on record that another one was taken, is unknown until that is concluded from.
    """
    judged = [(report, _judge(report.outcome) if report.outcome is not None else None) for report in reports]

    def work() -> dict[int, Applied[Settled] | Rejected]:
        refused = [report for report, judgement in judged if judgement is not None and judgement.effect in _REFUSALS]
        if refused:
            lease.await_holders([report.delivery.claim.run_id for report, _ in judged])
        taken = vouched([report.delivery.key for report in refused]) if refused else {}
        answers = operation.settle(
            [_settlement(report, judgement, doubted=report.delivery.key in taken) for report, judgement in judged],
            owner=owner,
        )
        attempts = [
            _attempt(report, report.outcome, judgement, owner, late=isinstance(answers[report.delivery.key], Rejected))
            for report, judgement in judged
            if report.outcome is not None and judgement is not None
        ]
        if attempts:
            record(attempts)
        _tell_endpoints(
            (report.delivery.endpoint, judgement)
            for report, judgement in judged
            if judgement is not None and isinstance(answers[report.delivery.key], Applied)
        )
        failpoints.reach(Point.IN_SETTLE)
        return answers

    answers = in_transaction(work)
    for key, answer in answers.items():
        if isinstance(answer, Rejected):
            log.warning(
                "fenced out: settle of operation %s refused (%s); current owner %s, epoch %s, status %s",
                key, answer.reason, answer.seen_owner, answer.seen_epoch, answer.seen_status,
            )  # fmt: skip
    return answers


def _judge(outcome: Outcome) -> Judgement:
    return outcomes.judge(outcome.verdict, outcome.http_status, outcome.headers)


def _settlement(report: Report, judgement: Judgement | None, *, doubted: bool) -> Settlement:
    delivery = report.delivery
    if report.outcome is None or judgement is None:
        return Settlement(delivery.claim, Proof.UNSENT, retry_ms=0, window_ms=window_ms(delivery.endpoint))
    summary = {
        "verdict": report.outcome.verdict,
        "classification": judgement.classification,
        "http_status": report.outcome.http_status,
        "error": storable(report.outcome.error),
        "attempt": delivery.claim.attempts,
    }
    return Settlement(
        claim=delivery.claim,
        proof=Proof.AMBIGUOUS if doubted and judgement.effect in _REFUSALS else PROOFS[judgement.effect],
        retry_ms=retry_delay_ms(
            delivery.endpoint, delivery.claim.attempts, delivery.age_s(report.ended_at), judgement.retry_after_s
        ),
        window_ms=window_ms(delivery.endpoint),
        result=summary,
        evidence={**summary, **_evidence(report, report.outcome), "response_headers": _headers(report.outcome)},
    )


def _attempt(report: Report, outcome: Outcome, judgement: Judgement, owner: str, *, late: bool) -> AttemptRow:
    delivery = report.delivery
    started = delivery.sent_at if delivery.sent_at is not None else report.ended_at
    return AttemptRow(
        operation_key=delivery.key,
        number=delivery.claim.attempts,
        epoch=delivery.claim.epoch,
        owner=owner,
        url=delivery.endpoint.url,
        started_at=delivery.moment(started),
        ended_at=delivery.moment(report.ended_at),
        verdict=outcome.verdict,
        classification=judgement.classification,
        http_status=outcome.http_status,
        response_headers=_headers(outcome) or None,
        response_body=outcome.body or None,
        error=storable(outcome.error),
        evidence=_evidence(report, outcome),
        late=late,
    )


def _evidence(report: Report, outcome: Outcome) -> dict[str, Any]:
    """What the wire showed, and which request it belongs to: a late acceptance counts only for the same one."""
    return {**outcome.evidence.as_json(), "request_digest": report.delivery.claim.request_digest.hex()}


def give_back(claims: Sequence[Claimed], *, owner: str) -> None:
    """Give back claims of which nothing was sent: they are what they were, due at once, and no attempt is spent."""
    in_transaction(
        lambda: operation.settle(
            [Settlement(claim, Proof.UNSENT, retry_ms=0, window_ms=None) for claim in claims], owner=owner
        )
    )


def already_written(reports: Sequence[Report], *, owner: str) -> set[tuple[int, int]]:
    """Of these reports, the (operation key, attempt number) of those that were settled: the read-back after a lost
    COMMIT. Limit: what was given back unsent leaves no attempt, and is not found."""
    rows = DELIVERIES["attempt.written"].rows(
        _Written,
        {
            "operation_keys": [report.delivery.key for report in reports],
            "numbers": [report.delivery.claim.attempts for report in reports],
            "owner": owner,
        },
    )
    return {(row.operation_key, row.number) for row in rows}


def _tell_endpoints(told: Iterable[tuple[Endpoint, Judgement]]) -> None:
    """Pause endpoints whose receivers asked for it, and disable those whose receivers are gone for good.

    One update each, in key order, so that two dispatchers with the same endpoints take turns. An answer of a former URL
    says nothing about the present one.
    """
    pauses: dict[UUID, float] = {}
    gone: dict[UUID, str] = {}
    urls: dict[UUID, str] = {}
    for endpoint, judgement in told:
        urls[endpoint.endpoint_id] = endpoint.url
        if judgement.throttle and judgement.retry_after_s:
            pauses[endpoint.endpoint_id] = max(judgement.retry_after_s, pauses.get(endpoint.endpoint_id, 0.0))
        if judgement.disable_endpoint is not None:
            gone[endpoint.endpoint_id] = judgement.disable_endpoint
    for key in sorted({*pauses, *gone}):
        there = Endpoint.objects.filter(pk=key, url=urls[key])
        if key in pauses:
            until = Now() + timedelta(seconds=pauses[key])
            there.filter(Q(blocked_until__isnull=True) | Q(blocked_until__lt=until)).update(blocked_until=until)
        if key in gone:
            there.filter(enabled=True).update(enabled=False, disabled_reason=gone[key], updated_at=Now())


def _headers(outcome: Outcome) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in outcome.headers:
        key, text = storable(name.lower()), storable(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def storable(value: str) -> str:
    """`value` without what PostgreSQL's text and jsonb cannot hold: NUL, and lone surrogates."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)
