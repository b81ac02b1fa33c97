"""`ETag` and `If-Match` (RFC 9110 §13.1.1): of two people who change the same thing, the second hears of the first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import HeaderEx, P

from deliveries.api.errors import ApiError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

IfMatch = HeaderEx[
    str | None, P(alias="If-Match", description="The `ETag` that you read; 412 when it was changed since.")
]
"""The parameter of a route that changes what has an ETag."""


def tag(updated_at: datetime) -> str:
    """The strong validator of a row that was last changed then."""
    return f'"{(updated_at - _EPOCH) // timedelta(microseconds=1):x}"'


def show(response: HttpResponse, updated_at: datetime) -> None:
    """Say which version an answer shows."""
    response["ETag"] = tag(updated_at)


class Changed(Exception):
    """It was changed since the version that the request names. Nothing was written."""


def condition(request: HttpRequest) -> Callable[[datetime], None]:
    """What a writer calls under the row's lock with its `updated_at`: raises `Changed` when `If-Match` names none of
    that version. Weak tags never match."""
    named = request.headers.get("If-Match")

    def check(updated_at: datetime) -> None:
        if named is None or named.strip() == "*":
            return
        if tag(updated_at) not in (one.strip() for one in named.split(",")):
            raise Changed

    return check


def refused(current: dict[str, Any]) -> ApiError:
    """412 that shows what is there now."""
    return ApiError(412, "It was changed since you read it. Nothing was done.", extra={"current": current})
