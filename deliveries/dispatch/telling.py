"""What endpoints are told of the answers of their receivers: pauses, the end, and how they are doing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from deliveries.dispatch.attempts import Report, storable
from deliveries.health import Watch, tell_disabled
from deliveries.models import DisabledBy, Endpoint
from deliveries.outcomes import Judgement
from deliveries.transport.base import Outcome


def tell_endpoints(told: Iterable[tuple[Endpoint, Judgement]]) -> None:
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
            closed = there.filter(enabled=True).update(
                enabled=False, disabled_reason=gone[key], disabled_by=DisabledBy.RECEIVER, updated_at=Now()
            )
            if closed:
                tell_disabled([key])


def pause(given_back: Iterable[Report]) -> None:
    """Pause endpoints for which there was no access token or no secret that opens, in key order. One whose secrets
    were changed meanwhile is not."""
    pauses = {report.delivery.endpoint.endpoint_id: report for report in given_back}
    for key in sorted(pauses):
        until = Now() + timedelta(seconds=pauses[key].pause_s)
        seen = pauses[key].delivery.endpoint
        there = Endpoint.objects.filter(pk=key, auth_sealed=seen.auth_sealed, secret_sealed=seen.secret_sealed)
        there.filter(Q(blocked_until__isnull=True) | Q(blocked_until__lt=until)).update(blocked_until=until)


def watched(watch: Watch, judged: Iterable[tuple[Report, Judgement | None]]) -> None:
    """Take note of how their endpoints are doing."""
    for report, judgement in judged:
        if report.outcome is not None and judgement is not None:
            delivery = report.delivery
            watch.saw(
                delivery.endpoint.endpoint_id, judgement, error=_said(report.outcome),
                first=delivery.claim.attempts == 1, probing=delivery.probing,
                at=report.ended_at,
            )  # fmt: skip


def _said(outcome: Outcome) -> str:
    """One sentence for who asks what is wrong with the endpoint."""
    return storable(outcome.error) or f"The receiver answered {outcome.http_status}."
