"""How endpoints are doing: the breaker that spares a sick receiver, and the end of one that has failed for days.

Every dispatcher keeps the news of the attempts that it settled and writes it down twice a second at most, in one
statement for all endpoints; that an endpoint is still well, much less often. News that is lost with its process costs
nothing but a little time. The rules are in `endpoint_state.sql`, on the rows that it locks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from deliveries import ids, operational
from deliveries.models import DisabledBy, Endpoint, EndpointState
from deliveries.operational import Type
from deliveries.outcomes import Effect, Judgement
from deliveries.queries import DELIVERIES
from ledger.models import Clock
from ledger.statements import in_transaction

log = logging.getLogger("relay.health")

WRITE_EVERY_S = 0.5
URGENT_EVERY_S = 0.02
"""The same for what opens a breaker, or keeps it open: until it is written down, more is sent to no use."""
WELL_EVERY_S = 30.0
"""How often it is written down that an endpoint is still well."""
WINDOW_MS, WINDOW_LEAST, WINDOW_SHARE = 60_000, 20, 0.5
"""A breaker opens when half of at least 20 answers in a minute were sick."""
SHORTEST_MS, LONGEST_MS = 5_000, 60_000
"""How long a breaker stays open: doubled each time, each moved by up to a fifth."""
BATCH = 500
LONGEST_ERROR = 500

Breaker = Literal["closed", "open", "half_open"]


@dataclass(slots=True)
class _News:
    """What was seen of one endpoint since it was last written down."""

    healthy: int = 0
    sick: int = 0
    sick_tail: int = 0
    accepted: int = 0
    accepted_at: float = 0.0  # monotonic seconds
    probe: bool | None = None  # whether the last try of one whose breaker was not closed found it well
    failed: int = 0
    ended_accepted: bool = True
    error: str = ""
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class _Recorded:
    endpoint_id: UUID
    move: str
    opens: int
    open_until: datetime | None
    recovered_at: datetime | None
    """It accepts again, after it was told that it fails."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    endpoint_id: UUID


@dataclass(frozen=True, slots=True)
class _Failing:
    endpoint_id: UUID
    failing_since: datetime
    failing_count: int
    enough: bool


@dataclass(frozen=True, slots=True)
class Health:
    """How an endpoint is doing. `failing_count`: deliveries of which no attempt was accepted since `failing_since`.

    `disables_at`: when it will be disabled if nothing is accepted until then; None while it does not fail.
    """

    breaker: Breaker
    open_until: datetime | None
    failing_since: datetime | None
    failing_count: int
    disables_at: datetime | None
    accepted_at: datetime | None
    failed_at: datetime | None
    last_error: str


class Watch:
    """What one dispatcher has to tell of the endpoints that it sends to. Used by one thread."""

    def __init__(self) -> None:
        self._news: dict[UUID, _News] = {}
        self._written: dict[UUID, float] = {}
        self._urgent = False
        self._next = 0.0
        self._last = 0.0

    def saw(
        self, endpoint_id: UUID, judgement: Judgement, *, error: str, first: bool, probing: bool, at: float
    ) -> None:
        """Take note of an attempt that was settled and had ended `at` (monotonic seconds). `first`: it was its
        delivery's first; `probing`: the breaker of its endpoint was not closed when it was claimed, and waits for what
        came of it: of this attempt, and of no other that was in flight."""
        news = self._news.get(endpoint_id)
        if news is None:
            news = self._news[endpoint_id] = _News()
        if probing:
            news.probe = not judgement.sick
        if judgement.sick:
            news.sick += 1
            news.sick_tail += 1
            if probing or news.sick_tail == settings.RELAY_BREAKER_FAILURES:
                self._next = min(self._next, self._last + URGENT_EVERY_S)
        else:
            news.healthy += 1
            news.sick_tail = 0
        if judgement.effect is Effect.ACCEPTED:
            news.accepted += 1
            news.accepted_at = at
            news.failed = 0
            news.ended_accepted = True
            if not probing:
                return
        else:
            news.failed += first
            news.ended_accepted = False
            news.error = error[:LONGEST_ERROR]
        news.urgent = self._urgent = True

    def write(self, *, at_once: bool = False, last: bool = False) -> None:
        """Write down what is due; a database error leaves it for the next time. `last`: there is no next time, and an
        acceptance must not be lost that came after another dispatcher, or this one, had written down a failure."""
        now = time.monotonic()
        if not self._news or (now < self._next and not at_once and not last):
            return
        due = {
            endpoint_id: news
            for endpoint_id, news in self._news.items()
            if last or news.urgent or now - self._written.get(endpoint_id, 0.0) >= WELL_EVERY_S
        }
        self._next, self._last = now + WRITE_EVERY_S, now
        if not due:
            return
        told = _record(due)
        for recorded in told:
            name = ids.render(ids.ENDPOINT, recorded.endpoint_id)
            if recorded.move == "open":
                log.warning(
                    "the breaker of %s is open until %s (time %d in a row)", name, recorded.open_until, recorded.opens
                )
            elif recorded.move == "close":
                why = "it answers again" if settings.RELAY_BREAKER_FAILURES else "breakers are switched off"
                log.info("the breaker of %s is closed: %s", name, why)
        for recorded in told:  # the others are held by somebody else at this moment: next time
            del self._news[recorded.endpoint_id]
            self._written[recorded.endpoint_id] = now
        self._urgent = False
        if len(self._written) > 10 * BATCH:
            self._written = {key: at for key, at in self._written.items() if now - at < WELL_EVERY_S}


def _record(due: dict[UUID, _News]) -> list[_Recorded]:
    def work() -> list[_Recorded]:
        recorded = _said(due)
        unborn = due.keys() - {one.endpoint_id for one in recorded}
        if unborn:
            DELIVERIES["endpoint_state.born"].rows(_Endpoint, {"endpoint_ids": sorted(unborn)})
            recorded += _said({key: due[key] for key in unborn})
        well = {one.endpoint_id: one.recovered_at for one in recorded if one.recovered_at is not None}
        for row in Endpoint.objects.filter(pk__in=well).order_by("pk") if well else ():
            tell_recovered([row], well[row.pk])
        return recorded

    return in_transaction(work)


def _said(due: dict[UUID, _News]) -> list[_Recorded]:
    told, now = sorted(due.items()), time.monotonic()
    return DELIVERIES["endpoint_state.record"].rows(
        _Recorded,
        {
            "endpoint_ids": [key for key, _ in told],
            "healthy": [news.healthy for _, news in told],
            "sick": [news.sick for _, news in told],
            "sick_tails": [news.sick_tail for _, news in told],
            "accepted": [news.accepted for _, news in told],
            "accepted_ago_ms": [1000 * (now - news.accepted_at) if news.accepted else None for _, news in told],
            "probes": [news.probe for _, news in told],
            "failed": [news.failed for _, news in told],
            "ended_accepted": [news.ended_accepted for _, news in told],
            "errors": [news.error for _, news in told],
            "in_a_row_limit": settings.RELAY_BREAKER_FAILURES,
            "window_ms": WINDOW_MS,
            "window_least": WINDOW_LEAST,
            "window_share": WINDOW_SHARE,
            "shortest_ms": SHORTEST_MS,
            "longest_ms": LONGEST_MS,
        },
    )


def reset(endpoint_id: UUID) -> None:
    """Begin anew with an endpoint that somebody says is well: breaker closed, not failing."""
    DELIVERIES["endpoint_state.reset"].rows(_Endpoint, {"endpoint_id": endpoint_id})


def disable_failing() -> int:
    """Disable endpoints of which nothing was accepted for RELAY_DISABLE_AFTER_HOURS, and say so half way there.

    How many were disabled. Limit: an endpoint that nobody sends to is not failing, however sick it is.
    """
    rows = DELIVERIES["endpoint_state.failing"].rows(
        _Failing,
        {
            "after_ms": settings.RELAY_DISABLE_AFTER_HOURS * 3_600_000,
            "span_ms": settings.RELAY_DISABLE_SPAN_HOURS * 3_600_000,
            "deliveries": settings.RELAY_DISABLE_DELIVERIES,
            "batch": BATCH,
        },
    )
    disabled = sum(_disable(one) for one in rows if one.enough)
    _warn([one for one in rows if not one.enough])
    return disabled


def _disable(one: _Failing) -> int:
    since = one.failing_since.isoformat(sep=" ", timespec="seconds")
    reason = f"Nothing was accepted since {since}: {one.failing_count} deliveries failed."
    changed = in_transaction(lambda: _close(one, reason))
    if changed:
        log.warning("%s is disabled: %s", ids.render(ids.ENDPOINT, one.endpoint_id), reason)
    return changed


def _close(one: _Failing, reason: str) -> int:
    there = Endpoint.objects.filter(pk=one.endpoint_id, enabled=True, state__failing_since=one.failing_since)
    changed = there.update(enabled=False, disabled_reason=reason, disabled_by=DisabledBy.RELAY, updated_at=Now())
    if changed:
        tell_disabled([one.endpoint_id])
    return changed


def tell_disabled(endpoint_ids: Collection[UUID]) -> None:
    """Tell of endpoints that were disabled in this transaction, why, and by whom."""
    operational.tell(
        operational.endpoint(
            row, Type.ENDPOINT_DISABLED, row.updated_at.isoformat(),
            reason=row.disabled_reason, by=row.disabled_by, disabled_at=row.updated_at.isoformat(),
        )
        for row in Endpoint.objects.filter(pk__in=endpoint_ids).order_by("pk")
        if operational.heard(row.tenant_id)
    )  # fmt: skip


def tell_recovered(rows: Iterable[Endpoint], at: datetime) -> None:
    """Tell of endpoints that accept again, after it was told that they fail; or that are enabled after Relay, or their
    receivers, had disabled them."""
    operational.tell(
        operational.endpoint(row, Type.ENDPOINT_RECOVERED, at.isoformat(), recovered_at=at.isoformat())
        for row in rows
        if operational.heard(row.tenant_id)
    )


def _warn(failing: Collection[_Failing]) -> None:
    if not failing:
        return
    warned = in_transaction(lambda: _say_half_way(failing))
    since = {one.endpoint_id: one.failing_since for one in failing}
    for row in warned:
        log.warning(
            "%s has accepted nothing since %s, and will be disabled at %s if it goes on like this",
            ids.render(ids.ENDPOINT, row.endpoint_id),
            since[row.endpoint_id].isoformat(sep=" ", timespec="seconds"),
            (since[row.endpoint_id] + _disable_after()).isoformat(sep=" ", timespec="seconds"),
        )


def _say_half_way(failing: Collection[_Failing]) -> list[_Endpoint]:
    warned = DELIVERIES["endpoint_state.warn"].rows(_Endpoint, {"endpoint_ids": [one.endpoint_id for one in failing]})
    about = {one.endpoint_id: one for one in failing}
    operational.tell(
        operational.endpoint(
            row, Type.ENDPOINT_FAILING, about[row.pk].failing_since.isoformat(),
            failing_since=about[row.pk].failing_since.isoformat(), failing_count=about[row.pk].failing_count,
            disables_at=(about[row.pk].failing_since + _disable_after()).isoformat(),
        )
        for row in Endpoint.objects.filter(pk__in=[one.endpoint_id for one in warned]).order_by("pk")
        if operational.heard(row.tenant_id)
    )  # fmt: skip
    return warned


def _disable_after() -> timedelta:
    return timedelta(hours=settings.RELAY_DISABLE_AFTER_HOURS)


def state_of(endpoint_ids: Iterable[UUID]) -> dict[UUID, Health]:
    """How these endpoints are doing; those of which there is no news yet are left out."""
    rows = EndpointState.objects.filter(endpoint_id__in=list(endpoint_ids)).annotate(now=Clock())
    return {row.endpoint_id: _health(row, row.now) for row in rows}


def _health(row: EndpointState, now: datetime) -> Health:
    breaker: Breaker = "closed"
    if row.opens and row.open_until is not None:
        breaker = "open" if row.open_until > now else "half_open"
    return Health(
        breaker=breaker,
        open_until=row.open_until,
        failing_since=row.failing_since,
        failing_count=row.failing_count,
        disables_at=None if row.failing_since is None else row.failing_since + _disable_after(),
        accepted_at=row.accepted_at,
        failed_at=row.failed_at,
        last_error=row.last_error,
    )
