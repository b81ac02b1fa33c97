"""What happened on the wire, and what it proves: one table, read by the engine, the admin and the documentation.

The verdict is the transport's, decided by evidence (bytes written, head complete). This table says what the pair
(verdict, status) means for the delivery. The response body plays no part.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum

from deliveries.retry import LONGEST_RETRY_AFTER

# The values of deliveries.models.Verdict; spelt here so that the wire can be judged without a Django start.
ANSWERED, NOT_SENT, UNKNOWN = "answered", "not_sent", "unknown"


class Effect(Enum):
    """What an attempt proves about the receiver."""

    ACCEPTED = "accepted"  # it took the event
    NOT_TAKEN = "not_taken"  # it did not take it, and another try may be made
    AMBIGUOUS = "ambiguous"  # it may have acted
    FINAL = "final"  # it did not take it and never will


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `ranges` are inclusive status ranges; a more exact range wins over a wider one."""

    classification: str
    verdict: str
    ranges: tuple[tuple[int, int], ...]
    effect: Effect
    meaning: str
    throttle: bool = False
    disables: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do after an attempt. `disable_endpoint` is the reason to give, or None."""

    classification: str
    effect: Effect
    retry_after_s: float | None
    disable_endpoint: str | None
    throttle: bool


ROWS: tuple[Row, ...] = (
    Row("accepted", ANSWERED, ((200, 299),), Effect.ACCEPTED, "The receiver took it."),
    Row(
        "redirect",
        ANSWERED,
        ((300, 399),),
        Effect.NOT_TAKEN,
        "Never followed. Update the endpoint's URL; tried again by schedule, then failed.",
    ),
    Row("rejected", ANSWERED, ((400, 499),), Effect.NOT_TAKEN, "The receiver said no. Tried again by schedule."),
    Row(
        "rejected_transient",
        ANSWERED,
        ((408, 408), (425, 425)),
        Effect.NOT_TAKEN,
        "The receiver said no for now. Tried again by schedule.",
    ),
    Row(
        "rejected_transient",
        ANSWERED,
        ((429, 429), (503, 503)),
        Effect.NOT_TAKEN,
        "The receiver is overloaded. Retry-After is honoured and the endpoint is throttled.",
        throttle=True,
    ),
    Row(
        "gone",
        ANSWERED,
        ((410, 410),),
        Effect.FINAL,
        "The receiver does not want this any more. The delivery fails and the endpoint is disabled.",
        disables=True,
    ),
    Row(
        "server_error",
        ANSWERED,
        ((500, 599), (600, 999)),
        Effect.AMBIGUOUS,
        "The receiver, or something in front of it, said no but may have acted. An idempotent endpoint is tried "
        "again by schedule; for an endpoint without capability the delivery becomes unknown.",
    ),
    Row(
        "not_sent",
        NOT_SENT,
        ((0, 0),),
        Effect.NOT_TAKEN,
        "Proven that the receiver cannot hold a complete request. Tried again by schedule.",
    ),
    Row("unknown", UNKNOWN, ((0, 0),), Effect.AMBIGUOUS, "Nobody can say whether the receiver took it."),
)


def _by_status(rows: Iterable[Row]) -> dict[int, Row]:
    table: dict[int, Row] = {}
    spans = [(high - low, low, high, row) for row in rows if row.verdict == ANSWERED for low, high in row.ranges]
    for _, low, high, row in sorted(spans, key=lambda span: -span[0]):
        table.update(dict.fromkeys(range(low, high + 1), row))
    return table


_ANSWERED = _by_status(ROWS)
_OTHER = {row.verdict: row for row in ROWS if row.verdict != ANSWERED}
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?\Z", re.ASCII)


def judge(
    verdict: str, http_status: int | None, headers: Sequence[tuple[str, str]], *, now: float | None = None
) -> Judgement:
    """The row for one attempt. `now` is Unix seconds, used only for a `Retry-After` date without a `Date` beside it.

    A receiver may refuse before it read the whole request: such an attempt is `not_sent`, yet its 410, 429 or 503
    still speaks about the endpoint and is heard.
    """
    answer = None if http_status is None else _ANSWERED.get(http_status)
    if verdict == ANSWERED:
        row = answer or _OTHER[UNKNOWN]  # an informational status is no answer
    elif verdict == NOT_SENT and answer is not None and (answer.throttle or answer.disables):
        row = answer
    else:
        row = _OTHER[verdict]
    if row.effect is Effect.ACCEPTED:
        return _ACCEPTED
    return Judgement(
        classification=row.classification,
        effect=row.effect,
        retry_after_s=retry_after_seconds(headers, now=now) if row.throttle else None,
        disable_endpoint=f"The receiver answered {http_status} Gone." if row.disables else None,
        throttle=row.throttle,
    )


_ACCEPTED = Judgement("accepted", Effect.ACCEPTED, None, None, False)


def retry_after_seconds(headers: Sequence[tuple[str, str]], *, now: float | None = None) -> float | None:
    """`Retry-After` (RFC 9110, 10.2.3) as seconds between 0 and 24 h; None when absent or not understood.

    Seconds may have a fraction. A date counts from the response's own `Date`, so that the receiver's clock need not
    agree with ours.
    """
    fields = {name.lower(): value.strip() for name, value in headers}
    text = fields.get("retry-after", "")
    if _SECONDS.match(text):
        return min(float(text), LONGEST_RETRY_AFTER)
    at = _http_date(text)
    if at is None:
        return None
    base = _http_date(fields.get("date", ""))
    if base is None:
        base = time.time() if now is None else now
    return min(max(at - base, 0.0), LONGEST_RETRY_AFTER)


def _http_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None  # a header that says nothing is as good as none
