"""The HTTP API at `/v1`: its routes, and the one shape of every error, whoever raised it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Router, Swagger
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser
from ninja.renderers import BaseRenderer

from deliveries.api import (
    acknowledgements,
    batches,
    deliveries,
    endpoint_actions,
    endpoints,
    event_types,
    events,
    expunge,
    jobs,
    keys,
    lines,
    operations,
    recover,
    replay,
    secrets,
    stats,
    tenants,
)
from deliveries.api.errors import ApiError, FieldError, invalid, malformed
from relay import openapi

logger = logging.getLogger(__name__)

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
READ_ONLY_PRIMARY = "25006"
"""SQLSTATE of a write on a server that was not promoted yet, or is no primary any more."""

DESCRIPTION = """
Submit events; Relay delivers each, signed, to every endpoint that wants it, at least once, and keeps what it does not
know as *unknown* until evidence or a person settles it.

Send `Authorization: Bearer KEY` with every request; only a receiver's acknowledgement is signed instead. An operator's
key names a tenant with `Relay-Tenant`; without it, the tenant is `default`. Every error is
`{"code", "detail", "errors"?}`. Lists are `{"items", "next_cursor"}`: give `next_cursor` back as `cursor`, with the
same filters.
"""


class JsonParser(Parser):
    """Strict JSON in UTF-8: no NaN, no lone surrogates."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(request.body)
        return body


class JsonRenderer(BaseRenderer):
    """Times in RFC 3339, UUIDs as text, and `msgspec.Raw` byte for byte."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return msgspec.json.encode(data)


class Api(NinjaAPI):
    """NinjaAPI whose every answer that is an error has our shape, also those made outside a route."""

    def get_openapi_schema(self, **where: Any) -> OpenAPISchema:
        """The document of all routes."""
        schema = super().get_openapi_schema(**where)
        openapi.finish(schema)
        return schema

    @property
    def urls(self) -> tuple[list[URLPattern | URLResolver], str, str]:
        patterns, app, namespace = super().urls
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                pattern.callback = _shaped(pattern.callback)
        return patterns, app, namespace


api = Api(
    title="Relay",
    version="1",
    description=DESCRIPTION,
    urls_namespace="v1",
    docs=Swagger(settings={"persistAuthorization": True}),
    parser=JsonParser(),
    renderer=JsonRenderer(),
)
# Before the routes of one event, whose ids it would be taken for.
api.add_router("/events", batches.router)
api.add_router("/events", events.router)
api.add_router("/events", replay.router)
api.add_router("/endpoints", endpoints.router)
api.add_router("/endpoints", secrets.router)
api.add_router("/endpoints", endpoint_actions.router)
api.add_router("/event-types", event_types.router)
# Before the routes of one delivery.
api.add_router("", recover.router)
api.add_router("/deliveries", deliveries.router)
api.add_router("/deliveries", lines.router)
api.add_router("/operations", operations.router)
api.add_router("/jobs", jobs.router)
api.add_router("/tenants", tenants.router)
api.add_router("/keys", keys.router)
api.add_router("/stats", stats.router)
api.add_router("", expunge.router)
api.add_router("/acknowledgements", acknowledgements.router)

_nowhere = Router()


@_nowhere.api_operation(METHODS, "/{path:rest}", include_in_schema=False, url_name="nowhere")
def nowhere(request: HttpRequest, rest: str) -> None:
    """Every address under /v1 that no other route took."""
    raise Http404(rest)


# The last one: Django takes the first pattern that fits.
api.add_router("", _nowhere)


def answer(refusal: ApiError) -> HttpResponse:
    """The response of a refusal."""
    response = HttpResponse(
        msgspec.json.encode(refusal.content()), status=refusal.status, content_type="application/json; charset=utf-8"
    )
    for name, value in refusal.headers.items():
        response[name] = value
    return response


@csrf_exempt
def no_route(request: HttpRequest) -> HttpResponse:
    """/v1 itself, and what cannot be a path: no address of the API."""
    return _not_found(request, Http404())


@api.exception_handler(ApiError)
def _refused(request: HttpRequest, refusal: ApiError) -> HttpResponse:
    return answer(refusal)


@api.exception_handler(AuthenticationError)
def _no_key(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    return answer(ApiError(401, "No key.", headers={"WWW-Authenticate": 'Bearer realm="relay"'}))


@api.exception_handler(HttpError)
def _framework_refused(request: HttpRequest, error: HttpError) -> HttpResponse:
    if error.status_code == 400:
        return answer(malformed(f"The body is not JSON in UTF-8: {error.__cause__ or error}."))
    return answer(ApiError(error.status_code, str(error)))


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    fields = []
    for found in error.errors:
        source, *place = found["loc"]
        if source == "body":
            place = place[1:]  # The name of the view's parameter, which is no field of the client's.
            if not place:
                return answer(malformed("The body must be a JSON object."))
        fields.append(FieldError(field=".".join(map(str, place)), detail=_plain(found)))
    return answer(invalid(*fields))


def _plain(found: dict[str, Any]) -> str:
    """A sentence for what pydantic found."""
    if found["type"] == "missing":
        return "is required"
    if found["type"] == "extra_forbidden":
        return "is not a field of this request"
    if found["type"] in {"dict_type", "model_attributes_type", "model_type"}:
        return "must be an object"
    message = str(found["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    return message[:1].lower() + message[1:]


@api.exception_handler(Http404)
def _not_found(request: HttpRequest, error: Exception) -> HttpResponse:
    return answer(ApiError(404, f"There is no route {request.method} {request.path[:200]}; see /v1/docs."))


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, error: Exception) -> HttpResponse:
    return answer(ApiError(413, "The body is larger than is accepted."))


@api.exception_handler(UnreadablePostError)
def _cut_short(request: HttpRequest, error: Exception) -> HttpResponse:
    return answer(malformed("The body ended before its Content-Length."))


@api.exception_handler(OperationalError)
@api.exception_handler(InterfaceError)
def _database_away(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("the primary database did not serve %s %s: %s", request.method, request.path, type(error).__name__)
    return answer(
        ApiError(
            503,
            "The primary database is away. Try again; send events with an Idempotency-Key, then none is stored twice.",
            headers={"Retry-After": "1"},
        )
    )


@api.exception_handler(InternalError)
def _database_internal(request: HttpRequest, error: Exception) -> HttpResponse:
    if getattr(error.__cause__, "sqlstate", None) == READ_ONLY_PRIMARY:
        return _database_away(request, error)
    return _broken(request, error)


@api.exception_handler(Exception)
def _broken(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return answer(ApiError(500, "The fault is here and not in the request."))


def _shaped(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """`view` with our error shape for what the framework answers by itself: 405, and errors of the documentation."""

    @functools.wraps(view)
    def shaped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = view(request, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  every kind has a handler, which logs what is unforeseen
            return api.on_exception(request, error)
        if response.status_code == 405:
            allowed = ", ".join(sorted(response["Allow"].split(", ")))
            return answer(ApiError(405, f"This route takes {allowed}.", headers={"Allow": allowed}))
        return response

    return shaped
