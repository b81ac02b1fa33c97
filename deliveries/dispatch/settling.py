"""Settle: write down what became of attempts, in batches, and take the answers row by row."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from django.db import DataError, IntegrityError

from deliveries import failpoints, outcomes, retry
from deliveries.dispatch import tokens
from deliveries.dispatch.attempts import Report, evidence_of, record, row_of
from deliveries.dispatch.exhausted import tell_exhausted
from deliveries.dispatch.telling import pause, tell_endpoints, watched
from deliveries.dispatch.vouching import vouched
from deliveries.failpoints import Point
from deliveries.health import Watch
from deliveries.models import Endpoint
from deliveries.outcomes import Effect, Judgement
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


def retry_delay_ms(
    endpoint: Endpoint, attempts: int, age_s: float, retry_after_s: float | None, *, slow: bool = False
) -> int | None:
    """Milliseconds to the next attempt after number `attempts`; None when schedule or maximum age allow none."""
    delay = retry.delay_seconds(
        endpoint.retry_schedule, attempts, jitter=endpoint.retry_jitter, rng=_RNG, retry_after=retry_after_s, slow=slow
    )
    if delay is None or not retry.within_age(age_s, delay, endpoint.retry_max_age_hours):
        return None
    return round(delay * 1000)


def window_ms(endpoint: Endpoint) -> int | None:
    """For how long the endpoint drops duplicates; None when it does not promise to."""
    return endpoint.window_hours * 3_600_000 if endpoint.idempotent else None


def settle(
    reports: Sequence[Report], *, owner: str, watch: Watch | None = None
) -> dict[int, Applied[Settled] | Rejected]:
    """Settle a batch, record its attempts, and tell the endpoints what their receivers asked for: one commit.

    A refused row leaves its evidence on the fenced write and on its attempt, marked late; it moves nothing. What this
    attempt proves not taken, while it is on record that another one was taken, is unknown until that is concluded from.
    `watch` is told of what was settled.
    """
    judged = [(report, _judge(report) if report.outcome is not None else None) for report in reports]

    def work() -> dict[int, Applied[Settled] | Rejected]:
        refused = [report for report, judgement in judged if judgement is not None and judgement.effect in _REFUSALS]
        if refused:
            lease.await_holders([report.delivery.claim.run_id for report, _ in judged])
        taken = vouched([report.delivery.key for report in refused]) if refused else {}
        anew = tokens.to_repeat((report.delivery, report.outcome) for report in refused)
        answers = operation.settle(
            [
                _settlement(
                    report, judgement, doubted=report.delivery.key in taken, at_once=report.delivery.key in anew
                )
                for report, judgement in judged
            ],
            owner=owner,
        )
        attempts = [
            row_of(report, report.outcome, judgement, owner, late=isinstance(answers[report.delivery.key], Rejected))
            for report, judgement in judged
            if report.outcome is not None and judgement is not None
        ]
        if attempts:
            record(attempts)
        tell_endpoints(
            (report.delivery.endpoint, judgement)
            for report, judgement in judged
            if judgement is not None and isinstance(answers[report.delivery.key], Applied)
        )
        tell_exhausted(answers.values(), [report.delivery.endpoint for report in reports])
        pause(report for report in reports if report.pause_s)
        failpoints.reach(Point.IN_SETTLE)
        return answers

    answers = in_transaction(work)
    for key, answer in answers.items():
        if isinstance(answer, Rejected):
            log.warning(
                "fenced out: settle of operation %s refused (%s); current owner %s, epoch %s, status %s",
                key, answer.reason, answer.seen_owner, answer.seen_epoch, answer.seen_status,
            )  # fmt: skip
    if watch is not None:
        watched(watch, [one for one in judged if isinstance(answers[one[0].delivery.key], Applied)])
    return answers


def settle_each(batch: Sequence[Report], *, owner: str, watch: Watch) -> set[int]:
    """Settle a batch; where PostgreSQL refuses one of its values, settle the others without it.

    Answers the keys of those that were not settled: refused, or with a value that cannot be written down. The latter is
    left to the reconciler, which will call it unknown: it was sent.
    """
    try:
        answers = settle(batch, owner=owner, watch=watch)
    except (DataError, IntegrityError) as refused:
        if len(batch) == 1:
            # Not the message: PostgreSQL quotes the value that it refused, which may be a receiver's answer.
            log.error("operation %s cannot be settled: %s", batch[0].delivery.key, type(refused).__name__)  # noqa: TRY400
            return {batch[0].delivery.key}
        middle = len(batch) // 2
        parts = (batch[:middle], batch[middle:])
        return {key for part in parts for key in settle_each(part, owner=owner, watch=watch)}
    return {key for key, answer in answers.items() if isinstance(answer, Rejected)}


def _judge(report: Report) -> Judgement:
    outcome, endpoint = report.outcome, report.delivery.endpoint
    assert outcome is not None
    return outcomes.judge(
        outcome.verdict, outcome.http_status, outcome.headers, conflict_accepts=endpoint.conflict_accepts
    )


def _settlement(report: Report, judgement: Judgement | None, *, doubted: bool, at_once: bool) -> Settlement:
    delivery = report.delivery
    if report.outcome is None or judgement is None:
        return Settlement(delivery.claim, Proof.UNSENT, retry_ms=0, window_ms=window_ms(delivery.endpoint))
    summary = {
        "verdict": report.outcome.verdict,
        "classification": judgement.classification,
        "http_status": report.outcome.http_status,
        "attempt": delivery.claim.attempts,
        **({"no_more": True} if judgement.no_more else {}),
    }
    delay_ms = None
    if not judgement.no_more:
        delay_ms = retry_delay_ms(
            delivery.endpoint, delivery.claim.attempts, delivery.age_s(report.ended_at), judgement.retry_after_s,
            slow=judgement.slow,
        )  # fmt: skip
    return Settlement(
        claim=delivery.claim,
        proof=Proof.AMBIGUOUS if doubted and judgement.effect in _REFUSALS else PROOFS[judgement.effect],
        retry_ms=0 if at_once and delay_ms is not None else delay_ms,
        window_ms=window_ms(delivery.endpoint),
        result=summary,
        # What the receiver said is in the attempt alone: from there it can be removed on request.
        evidence={**summary, **evidence_of(report, report.outcome)},
    )


def give_back(claims: Sequence[Claimed], *, owner: str) -> None:
    """Give back claims of which nothing was sent: they are what they were, due at once, and no attempt is spent."""
    in_transaction(
        lambda: operation.settle(
            [Settlement(claim, Proof.UNSENT, retry_ms=0, window_ms=None) for claim in claims], owner=owner
        )
    )
