"""`/v1/deliveries`: one event going to one endpoint, and its whole life. Read-only."""

from __future__ import annotations

from ninja import Query, Router
from pydantic import Field

from deliveries import ids
from deliveries.api import find, pages, present, schemas
from deliveries.api.access import Request, needs
from deliveries.api.errors import refusals
from deliveries.models import Scope
from ledger.models import Task

router = Router(tags=["Deliveries"])


class DeliveryQuery(pages.PageQuery):
    """Filters of the list of deliveries."""

    event_id: str | None = Field(None, description="Of this event.")
    endpoint_id: str | None = Field(None, description="To this endpoint.")


@router.get(
    "",
    auth=needs(Scope.READ),
    response={200: schemas.DeliveryPage, **refusals(422)},
    summary="List deliveries",
    operation_id="list_deliveries",
)
def list_deliveries(request: Request, query: Query[DeliveryQuery]) -> schemas.DeliveryPage:
    """The tenant's deliveries, newest first. Scope: `read`."""
    rows = Task.objects.filter(tenant_id=request.auth.tenant_id)
    if query.event_id is not None:
        rows = rows.filter(event_id=pages.filter_id("event_id", ids.EVENT, query.event_id))
    if query.endpoint_id is not None:
        rows = rows.filter(endpoint_id=pages.filter_id("endpoint_id", ids.ENDPOINT, query.endpoint_id))
    found, following = pages.newest_first(rows, "dlv", "task_id", query)
    items = [schemas.DeliveryItem(**fields) for fields in present.deliveries(found)]
    return schemas.DeliveryPage(items=items, next_cursor=following)


@router.get(
    "/{delivery_id}",
    auth=needs(Scope.READ),
    response={200: schemas.Delivery, **refusals(404)},
    summary="Read a delivery",
    operation_id="get_delivery",
)
def get_delivery(request: Request, delivery_id: str) -> schemas.Delivery:
    """A delivery with its runs, operations, attempts, takeovers and fenced writes. Scope: `read`."""
    return present.whole_delivery(find.delivery(request.auth.tenant_id, delivery_id))
