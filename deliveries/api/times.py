"""Times in requests: text by RFC 3339 with a zone, and nothing that merely can be read as one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator

RULE = "must be a time by RFC 3339 with a zone, as 2030-01-31T09:30:00Z, from the year 1970 to 8999"

_FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def _read(value: Any) -> datetime:
    if not isinstance(value, str) or not _FORM.fullmatch(value):
        raise ValueError(RULE)
    try:
        read = datetime.fromisoformat(value.upper())
    except ValueError as strange:
        raise ValueError(RULE) from strange
    if not _EARLIEST <= read < _LATEST:
        raise ValueError(RULE)
    return read


Time = Annotated[AwareDatetime, BeforeValidator(_read)]
"""A field of a request (RFC 3339 §5.6). A number is refused, although pydantic would take it for seconds."""
