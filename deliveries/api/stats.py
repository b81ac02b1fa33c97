"""`/v1/stats`: where a tenant stands at this moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from ninja import Router
from pydantic import BaseModel, Field

from deliveries.api.access import Request, needs
from deliveries.api.errors import refusals
from deliveries.models import Scope
from deliveries.queries import DELIVERIES

router = Router(tags=["Stats"])

MOST = 10_000


@dataclass(frozen=True, slots=True)
class _Row:
    unsettled: int
    due: int
    oldest_due_at: datetime | None
    in_flight: int
    unknown: int
    oldest_unknown_since: datetime | None
    needs_a_person: int
    endpoints: int
    enabled: int
    failing: int
    breakers_open: int
    at: datetime


class Stats(BaseModel):
    """What is not settled, and how the endpoints are. Nothing that is settled is counted."""

    at: datetime = Field(description="By the database's clock.")
    more: bool = Field(description=f"There is more than {MOST} unsettled: the counts are of that many.")
    unsettled: int = Field(description="Deliveries that are not over.")
    due: int = Field(description="Of those, what may be sent now.")
    oldest_due_at: datetime | None = Field(description="Since when the one that waits for longest may be sent.")
    in_flight: int = Field(description="Of those, what is being sent.")
    unknown: int = Field(description="Of those, what nobody knows the outcome of.")
    oldest_unknown_since: datetime | None
    needs_a_person: int = Field(description="Of those, what is not moved on by itself.")
    endpoints: int
    enabled: int = Field(description="Of the endpoints.")
    failing: int = Field(description="Of the enabled ones, those that accept nothing.")
    breakers_open: int = Field(description="Of the enabled ones, those whose breaker is not closed.")


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: Stats, **refusals()},
    summary="Read where the tenant stands",
    operation_id="get_stats",
)
def get_stats(request: Request) -> Stats:
    """How much is due, in flight and unknown, and how the endpoints are. Scope: `read`."""
    (row,) = DELIVERIES["stats.of_tenant"].rows(_Row, {"tenant_id": request.auth.tenant_id, "most": MOST})
    counted = asdict(row)
    more = row.unsettled > MOST or row.endpoints > MOST
    return Stats(**counted, more=more)
