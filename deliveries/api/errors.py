"""The one error shape, `{"code", "detail", "errors"?}`, and the refusals that routes raise."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

CODES: dict[int, tuple[str, str]] = {
    400: ("malformed", "The request cannot be read."),
    401: ("unauthorized", "No key or signature, or one that is unknown, expired or revoked."),
    403: ("forbidden", "The key may not do this."),
    404: ("not_found", "There is nothing here, or it is another tenant's."),
    405: ("method_not_allowed", "This route does not take that method; `Allow` names those it takes."),
    409: ("conflict", "What is there now does not agree with the request."),
    411: ("length_required", "The request has no Content-Length."),
    412: ("precondition_failed", "It was changed since: `If-Match` names another version."),
    413: ("too_large", "The body is larger than is accepted."),
    415: ("unsupported_media_type", "The body is of a kind that is not accepted."),
    422: ("invalid", "A field is missing or wrong: `errors` names it."),
    429: ("too_many_requests", "Slow down: `Retry-After` says for how many seconds."),
    500: ("internal_error", "The fault is here and not in the request."),
    503: ("unavailable", "The primary database is away. Try again."),
}


SPECIFIC: dict[str, tuple[int, str]] = {
    "key_unknown": (401, "There is no such key."),
    "key_expired": (401, "The key has expired."),
    "key_revoked": (401, "The key was revoked."),
    "missing_scope": (403, "The key lacks the scope that the route needs; the answer names it."),
    "idempotency_conflict": (409, "The Idempotency-Key was used for an event with other content."),
    "id_conflict": (409, "The id is that of an event with other content."),
    "message_conflict": (409, "The `webhook-id` of the acknowledgement was used for other content."),
    "unsettled": (409, "Nobody knows what became of an operation of the delivery: resolve it first."),
    "expunged": (409, "The event's content was removed, so it cannot be sent again."),
    "not_verified": (409, "The endpoint's URL has not answered a challenge: `POST …/verify` sends one."),
    "too_many_acknowledgements": (429, "So many words about one operation are on record that no more are kept."),
}
"""Codes that say more than their status does: each with its status."""


class FieldError(BaseModel):
    """What is wrong with one field, header or query parameter."""

    field: str = Field(examples=["url"])
    detail: str = Field(examples=["is required"])


class Error(BaseModel):
    """Every refusal looks like this."""

    code: str = Field(examples=["invalid"])
    detail: str = Field(examples=["url: is required"])
    errors: list[FieldError] | None = Field(default=None, description="Present when certain fields are at fault.")


class ApiError(Exception):
    """A refusal on its way to the client."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        errors: list[FieldError] | None = None,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        assert code is None or code == code_of(status) or SPECIFIC.get(code, (0,))[0] == status, f"document {code}"
        self.status = status
        self.detail = detail
        self.code = code or code_of(status)
        self.errors = errors
        self.headers = headers or {}
        self.extra = extra or {}

    def content(self) -> dict[str, Any]:
        """The answer's body."""
        shown: dict[str, Any] = {"code": self.code, "detail": self.detail}
        if self.errors:
            shown["errors"] = [{"field": error.field, "detail": error.detail} for error in self.errors]
        return shown | self.extra


def code_of(status: int) -> str:
    """The word that goes with a status."""
    return CODES.get(status, ("error", ""))[0]


def malformed(detail: str) -> ApiError:
    """400: the request cannot be read at all."""
    return ApiError(400, detail)


def gone_on(detail: str, current: BaseModel, *, code: str | None = None, **extra: Any) -> ApiError:
    """409: it is not as the request takes it to be; `current` shows how it is."""
    return ApiError(409, detail, code=code, extra={**extra, "current": current.model_dump()})


def not_found(what: str) -> ApiError:
    """404: it does not exist, or belongs to another tenant; the two look the same."""
    return ApiError(404, f"No such {what}.")


def invalid(*errors: FieldError) -> ApiError:
    """422: the named fields are at fault."""
    shown = "; ".join(f"{error.field}: {error.detail}" for error in errors[:5])
    return ApiError(422, shown + ("; …" if len(errors) > 5 else ""), errors=list(errors))


def invalid_field(field: str, detail: str) -> ApiError:
    """422: one field is at fault."""
    return invalid(FieldError(field=field, detail=detail))


def refusals(*statuses: int) -> dict[int, type[BaseModel]]:
    """The error answers of a route for its documentation: the given ones and those that every route has."""
    return dict.fromkeys(sorted({401, 403, 503, *statuses}), Error)
