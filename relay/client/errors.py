"""What can go wrong when Relay is called. Every error is a `RelayError`; none holds the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field, header or query parameter."""

    field: str
    detail: str


class RelayError(Exception):
    """Relay refused, failed, or could not be reached.

    `status` is that of the answer, None when there was none; `code`, `detail` and `errors` are the answer's; `content`
    is all of it, for instance `content["current"]` of a conflict. `retry_after` are the seconds that it asked to wait.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str = "error",
        errors: tuple[FieldError, ...] = (),
        content: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.content: Mapping[str, Any] = content or {}
        self.retry_after = retry_after

    @property
    def current(self) -> Mapping[str, Any]:
        """What is there now, where the answer showed it; else empty."""
        shown = self.content.get("current")
        return shown if isinstance(shown, dict) else {}


class Misconfigured(RelayError):
    """There is no key, or the URL, key or tenant cannot be one. Nothing was sent."""


class Unauthorized(RelayError):
    """401: no key, or one that is unknown, expired or revoked."""


class Forbidden(Unauthorized):
    """403: the key may not do this; `detail` names the scope that it lacks."""


class NotFound(RelayError):
    """404: it does not exist, or is another tenant's."""


class Conflict(RelayError):
    """409: what is there now does not agree with the request."""


class Changed(Conflict):
    """412: it was changed since the version that the `etag` names."""


class Invalid(RelayError):
    """400, 411, 413, 415, 422: the request is wrong; `errors` names the fields."""


class Unavailable(RelayError):
    """429, 502, 503, 504, or no answer at all: try again later. What was submitted with a key of its own may be
    submitted again under it."""


class Unintelligible(RelayError):
    """The answer is not one of Relay's: the URL leads elsewhere, or to a version that this client does not know."""


_KINDS: dict[int, type[RelayError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    411: Invalid,
    412: Changed,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_of(status: int, content: Mapping[str, Any], retry_after: float | None = None) -> RelayError:
    """The error that an answer of the one error shape is."""
    given = content.get("errors")
    errors = tuple(
        FieldError(str(one.get("field", "")), str(one.get("detail", "")))
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, dict)
    )
    kind = _KINDS.get(status, RelayError)
    return kind(
        str(content.get("detail") or f"Relay answered {status}."),
        status=status,
        code=str(content.get("code") or "error"),
        errors=errors,
        content=content,
        retry_after=retry_after,
    )
