"""The first page of the admin: what an operator must know at once.

Every number is read from a bounded piece of an index. None counts a table: from `CAP` on a count reads "1,000+".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Min, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from deliveries import ids
from deliveries.models import Attempt, DisabledBy, Endpoint, Verdict
from ledger.admin.text import badge, database_now, outside, span, when
from ledger.models import Dispatch, FencedWrite, Operation, Takeover

CAP = 1_000
RECENT_ATTEMPTS = 500
ENDPOINTS = 1_000
DUE_PER_ENDPOINT = 200
DAY = timedelta(hours=24)

# Each endpoint's due rows stand together in the index `dispatch_due`: those in line beside those that are not.
BACKLOG = """
/* relay dashboard.backlog */
WITH receiving AS (
    SELECT endpoint_id FROM deliveries_endpoint WHERE deleted_at IS NULL ORDER BY endpoint_id DESC LIMIT %(endpoints)s
)
SELECT coalesce(sum(due.found), 0), min(due.oldest), coalesce(max(due.found), 0)
FROM receiving CROSS JOIN LATERAL (
    SELECT count(*) AS found, min(first.due_at) AS oldest
    FROM (
        (SELECT dispatch.due_at FROM ledger_dispatch AS dispatch
         WHERE dispatch.endpoint_id = receiving.endpoint_id AND NOT dispatch.in_line
           AND dispatch.due_at <= (SELECT clock_timestamp()) AND dispatch.until IS NULL
         ORDER BY dispatch.due_at LIMIT %(each)s)
        UNION ALL
        (SELECT dispatch.due_at FROM ledger_dispatch AS dispatch
         WHERE dispatch.endpoint_id = receiving.endpoint_id AND dispatch.in_line
           AND dispatch.due_at <= (SELECT clock_timestamp()) AND dispatch.until IS NULL
         ORDER BY dispatch.due_at LIMIT %(each)s)
        ORDER BY due_at LIMIT %(each)s
    ) AS first
) AS due
"""


@dataclass(frozen=True, slots=True)
class Card:
    """One number: what it counts, where its rows are, and how bad it is (`good`, `warn`, `bad`, `plain`)."""

    title: str
    number: str
    detail: Any
    page: str
    """The model whose list it leads to, `app.model`: who may not see that does not see the number."""
    tone: str = "plain"
    query: str = ""

    @property
    def url(self) -> str:
        """Where its rows are."""
        app, model = self.page.split(".")
        return reverse(f"admin:{app}_{model}_changelist") + self.query

    def visible(self, request: HttpRequest) -> bool:
        """Whether this person may see it."""
        app, model = self.page.split(".")
        return request.user.has_perm(f"{app}.view_{model}")


@dataclass(slots=True)
class Health:
    """What the latest attempts say of one endpoint."""

    sent: int = 0
    accepted: int = 0
    last: dict[str, Any] = field(default_factory=dict)


def capped(count: int) -> str:
    """`12`, or `1,000+`."""
    return f"{CAP:,}+" if count > CAP else f"{count:,}"


def unknown_rows() -> QuerySet[Dispatch]:
    """Unknown operations that only a person can move on, oldest first."""
    return Dispatch.objects.filter(unknown_since__isnull=False, due_at=None, until=None).order_by("pk")


def unknown_badge(request: HttpRequest) -> str | None:
    """The number beside "Unknown operations" in the sidebar; nothing when there are none."""
    count = unknown_rows()[: CAP + 1].count()
    return capped(count) if count else None


def callback(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What `templates/admin/index.html` shows."""
    now = database_now()
    recent = recent_attempts()
    context |= {
        "title": "Dashboard",
        "cards": [card for card in cards(now) if card.visible(request)],
        "trouble": trouble(recent, now) if request.user.has_perm("deliveries.view_endpoint") else [],
        "outcomes": outcomes(recent),
        "rate": rate(recent, now),
        "now": when(now),
    }
    return context


def cards(now: datetime) -> list[Card]:
    """The numbers at the top."""
    unknown = unknown_rows()[: CAP + 1].aggregate(n=Count("pk"), oldest=Min("unknown_since"))
    itself = Dispatch.objects.filter(unknown_since__isnull=False).exclude(due_at=None, until=None).order_by("pk")
    repeated = itself[: CAP + 1].count()
    flight = (
        Dispatch.objects.filter(until__isnull=False)
        .order_by("until")[: CAP + 1]
        .aggregate(n=Count("pk"), first=Min("until"))
    )
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG, {"endpoints": ENDPOINTS, "each": DUE_PER_ENDPOINT})
        due, oldest, most = cursor.fetchone()
    overdue = flight["first"] is not None and flight["first"] <= now
    return [
        Card(
            "Unknown, needs a person",
            capped(unknown["n"]),
            f"oldest for {span(now - unknown['oldest'])}" if unknown["oldest"] else "nothing waits for you",
            "ledger.dispatch",
            "warn" if unknown["n"] else "good",
        ),
        Card(
            "Unknown, retried by itself",
            capped(repeated),
            "under the same id",
            "ledger.dispatch",
            query="?moves=itself",
        ),
        Card(
            "Due now",
            f"{int(due):,}+" if most >= DUE_PER_ENDPOINT or due > CAP else f"{int(due):,}",
            f"oldest due for {span(now - oldest)}" if oldest else "nothing is late",
            "ledger.operation",
            "warn" if oldest and now - oldest > timedelta(minutes=1) else "good",
            "?status=prepared",
        ),
        Card(
            "In flight",
            capped(flight["n"]),
            "a claim ran out: its worker is gone" if overdue else "claimed under a lease",
            "ledger.lease",
            "warn" if overdue else "plain",
        ),
        Card(
            "Takeovers in 24 h",
            _last_day(Takeover.objects.order_by("-pk"), "taken_at", now),
            "leases that ran out",
            "ledger.takeover",
        ),
        Card(
            "Fenced writes in 24 h",
            _last_day(FencedWrite.objects.order_by("-pk"), "refused_at", now),
            "late writes refused",
            "ledger.fencedwrite",
        ),
    ]


def _last_day(rows: QuerySet[Any], column: str, now: datetime) -> str:
    """Rows of the last day among the newest: keys rise with time, so no index on the time is needed."""
    times = list(rows.values_list(column, flat=True)[: CAP + 1])
    return capped(sum(moment > now - DAY for moment in times))


def recent_attempts() -> list[dict[str, Any]]:
    """The newest attempts with the endpoint that each went to: two queries."""
    columns = ("operation_key", "verdict", "classification", "http_status", "error", "recorded_at")
    rows = list(Attempt.objects.order_by("-attempt_id").values(*columns)[:RECENT_ATTEMPTS])
    keys = {row["operation_key"] for row in rows}
    to = dict(Operation.objects.filter(pk__in=keys).values_list("pk", "run__task__endpoint_id"))
    return [{**row, "endpoint_id": to.get(row["operation_key"])} for row in rows]


def trouble(recent: list[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Endpoints that were switched off, asked for a pause, or accepted none of their latest three or more attempts."""
    health: dict[UUID, Health] = {}
    for row in recent:
        if row["endpoint_id"] is None:
            continue
        one = health.setdefault(row["endpoint_id"], Health())
        one.sent += 1
        one.accepted += row["verdict"] == Verdict.ANSWERED and 200 <= (row["http_status"] or 0) < 300
        one.last = one.last or row
    failing = {key for key, one in health.items() if one.sent >= 3 and not one.accepted}
    newest = Endpoint.objects.filter(deleted_at=None).order_by("-pk").values("pk")[:ENDPOINTS]
    stopped = Q(enabled=False) & ~Q(disabled_by=DisabledBy.REQUEST)
    wanted = Q(pk__in=failing) | (Q(pk__in=newest) & (stopped | Q(blocked_until__gt=now)))
    found = []
    for endpoint in Endpoint.objects.filter(wanted, deleted_at=None).order_by("-pk")[:20]:
        why = []
        if not endpoint.enabled:
            why.append(f"disabled: {endpoint.disabled_reason}")
        if endpoint.blocked_until and endpoint.blocked_until > now:
            why.append(f"asked for a pause, {span(endpoint.blocked_until - now)} left")
        if endpoint.pk in failing:
            one = health[endpoint.pk]
            why.append(
                f"accepted none of its latest {one.sent} attempts; "
                f"the last: {one.last['error'] or one.last['classification']}"
            )
        found.append(
            {
                "name": ids.render(ids.ENDPOINT, endpoint.pk),
                "url": reverse("admin:deliveries_endpoint_change", args=(endpoint.pk,)),
                "where": outside(endpoint.url, 100),
                "why": outside("; ".join(why), 300),
            }
        )
    return found


def outcomes(recent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The latest attempts by classification: how many, and what share in percent."""
    counted = Counter((row["classification"], row["verdict"]) for row in recent)
    return [
        {
            "name": badge(name, "warn" if verdict == Verdict.UNKNOWN else None),
            "n": n,
            "percent": round(100 * n / len(recent)),
        }
        for (name, verdict), n in counted.most_common(12)
    ]


def rate(recent: list[dict[str, Any]], now: datetime) -> str:
    """How fast the latest attempts came."""
    if not recent:
        return ""
    length = now - recent[-1]["recorded_at"]
    per_minute = 60 * len(recent) / max(length.total_seconds(), 1)
    return f"{len(recent):,} attempts in the last {span(length)}: {per_minute:,.0f} a minute"
