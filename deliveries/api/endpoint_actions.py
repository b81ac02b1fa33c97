"""What may be done with an endpoint beside changing its settings: test it, close and open it, verify its URL."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import HttpResponse
from ninja import Body, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from deliveries import endpoints, ids, verification
from deliveries.api import endpoint_present, etags, find, schemas
from deliveries.api.access import Request, needs
from deliveries.api.endpoint_schemas import Endpoint
from deliveries.api.endpoints import EndpointChanged, stale
from deliveries.api.errors import ApiError, Error, invalid_field, not_found, refusals
from deliveries.api.submission import KEY_HEADER, TYPE_FORM
from deliveries.api.submitting import take
from deliveries.models import Scope
from deliveries.submit import NewEvent
from ledger.models import Task

router = Router(tags=["Endpoints"])

TEST_TYPE = "relay.test"
REASON_LENGTH = 500


class TestEvent(BaseModel):
    """What to send. Anything may stand in `data`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"data": {"hello": "world"}}]})

    type: str = Field(default=TEST_TYPE, pattern=f"^{TYPE_FORM}$", description="The event type that it is to have.")
    data: Any = Field(default={"test": True}, description="Any JSON.")


class Tested(BaseModel):
    """A test event on its way to the endpoint, and to no other."""

    id: str = Field(description="The event.", examples=[schemas.EVENT])
    delivery_id: str = Field(description="Read it to see what came of it.", examples=[schemas.DELIVERY])


class Disable(BaseModel):
    """Why nothing more is to be sent."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "The receiver is being rebuilt."}]}
    )

    reason: str = Field(default=endpoints.BY_REQUEST, min_length=1, max_length=REASON_LENGTH)


class EndpointConflict(Error):
    """The endpoint is not in a state for that."""

    current: Endpoint


@router.post(
    "/{endpoint_id}/test",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={202: Tested, **refusals(400, 404, 413, 422), 409: EndpointConflict},
    summary="Send a test event",
    operation_id="test_endpoint",
)
def send_test_event(request: Request, endpoint_id: str, test: Body[TestEvent] = TestEvent()) -> Status[Tested]:  # noqa: B008
    """Send an event to this endpoint alone, whatever its types and filter, and in no line. Scope: `endpoints:write`.

    It is an event like any other: signed, tried again, and on record. 409 while the endpoint is disabled.
    """
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    if not row.enabled:
        raise _conflict("It is disabled, and gets nothing: enable it first.", request, endpoint_id)
    payload = msgspec.json.encode(test.data)
    event = NewEvent(request.auth.tenant_id, test.type, payload, only_endpoint_id=row.endpoint_id)
    (outcome,) = take(request.auth.tenant_id, [event], KEY_HEADER)
    if isinstance(outcome, ApiError):
        raise outcome
    task = Task.objects.filter(event_id=outcome.event_id).first()
    if task is None:
        raise _conflict("It was disabled meanwhile, and gets nothing.", request, endpoint_id)
    return Status(202, Tested(id=outcome.id, delivery_id=ids.render(ids.DELIVERY, task.task_id)))


@router.post(
    "/{endpoint_id}/enable",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Endpoint, **refusals(404), 409: EndpointConflict, 412: EndpointChanged},
    summary="Enable an endpoint",
    operation_id="enable_endpoint",
)
def enable_endpoint(
    request: Request, response: HttpResponse, endpoint_id: str, if_match: etags.IfMatch = None
) -> Endpoint:
    """Send to it again, also what waits; its breaker is closed and its failing is forgotten. Scope: `endpoints:write`.

    409 with the code `not_verified` while its URL has not answered a challenge.
    """
    return _changed(request, response, endpoint_id, enabled=True)


@router.post(
    "/{endpoint_id}/disable",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Endpoint, **refusals(400, 404, 413, 422), 412: EndpointChanged},
    summary="Disable an endpoint",
    operation_id="disable_endpoint",
)
def disable_endpoint(
    request: Request,
    response: HttpResponse,
    endpoint_id: str,
    disable: Body[Disable] = Disable(),  # noqa: B008
    if_match: etags.IfMatch = None,
) -> Endpoint:
    """Send nothing more to it. What waits is kept for when it is enabled again; events that are accepted meanwhile are
    not for it. Scope: `endpoints:write`.
    """
    if not disable.reason.strip() or "\0" in disable.reason:
        raise invalid_field("reason", "must say why, in text")
    return _changed(request, response, endpoint_id, enabled=False, reason=disable.reason.strip())


@router.post(
    "/{endpoint_id}/verify",
    auth=needs(Scope.ENDPOINTS_WRITE),
    response={200: Endpoint, **refusals(404), 409: EndpointConflict},
    summary="Verify an endpoint's URL",
    operation_id="verify_endpoint",
)
def verify_endpoint(request: Request, response: HttpResponse, endpoint_id: str) -> Endpoint:
    """Send a signed challenge to its URL, and enable the endpoint when that says it back. Scope: `endpoints:write`.

    The challenge is a `POST` of the type `relay.verification` with the body `{"challenge": "…"}`; the answer is a 2xx
    with the same text, alone or in the same form, within ten seconds. 409 with the code `not_verified` says what came
    back instead.
    """
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    if not row.must_verify:
        raise _conflict("Its URL needs no verification: `verify` is not set.", request, endpoint_id)
    outcome = verification.verify(row)
    if isinstance(outcome, verification.NotVerified):
        raise _conflict(outcome.why, request, endpoint_id, code="not_verified")
    etags.show(response, outcome.updated_at)
    return Endpoint(**endpoint_present.whole(outcome))


def _changed(
    request: Request, response: HttpResponse, endpoint_id: str, *, enabled: bool, reason: str = endpoints.BY_REQUEST
) -> Endpoint:
    row = find.endpoint(request.auth.tenant_id, endpoint_id)
    check = etags.condition(request)
    try:
        changed = endpoints.update(
            request.auth.tenant_id, row.endpoint_id, {"enabled": enabled}, reason=reason, check=check
        )
    except etags.Changed as old:
        raise stale(request, endpoint_id) from old
    except endpoints.EndpointRefused as refused:
        detail = "Its URL is not verified: `POST …/verify` sends it a challenge."
        raise _conflict(detail, request, endpoint_id, code="not_verified") from refused
    if changed is None:
        raise not_found("endpoint")
    etags.show(response, changed.updated_at)
    return Endpoint(**endpoint_present.whole(changed))


def _conflict(detail: str, request: Request, endpoint_id: str, code: str | None = None) -> ApiError:
    now = Endpoint(**endpoint_present.whole(find.endpoint(request.auth.tenant_id, endpoint_id)))
    return ApiError(409, detail, code=code, extra={"current": now.model_dump()})
