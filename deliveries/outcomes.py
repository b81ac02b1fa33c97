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
    sick: bool = False
    """It tells that the receiver is not well, and counts for its breaker. A refusal of one payload does not."""
    slow: bool = False
    """Another try is hardly of use soon: each waits for the longest step of the schedule."""
    status_shown: str = ""
    """For the documentation, where the ranges do not say it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do after an attempt. `disable_endpoint` is the reason to give, or None; `no_more`: it is not tried again.

    A judgement that may have been taken and is not tried again leaves its operation unknown.
    """

    classification: str
    effect: Effect
    retry_after_s: float | None = None
    disable_endpoint: str | None = None
    throttle: bool = False
    sick: bool = False
    slow: bool = False
    no_more: bool = False


ROWS: tuple[Row, ...] = (
    Row("accepted", ANSWERED, ((200, 299),), Effect.ACCEPTED, "The receiver took it."),
    Row(
        "redirect",
        ANSWERED,
        ((300, 399),),
        Effect.NOT_TAKEN,
        "Never followed: update the endpoint's URL. Tried again, each time after the longest step of the schedule.",
        slow=True,
    ),
    Row("rejected", ANSWERED, ((400, 499),), Effect.NOT_TAKEN, "The receiver said no. Tried again by schedule."),
    Row(
        "rejected_transient",
        ANSWERED,
        ((408, 408), (425, 425)),
        Effect.NOT_TAKEN,
        "The receiver said no for now. Tried again by schedule.",
        sick=True,
    ),
    Row(
        "rejected_transient",
        ANSWERED,
        ((429, 429), (503, 503)),
        Effect.NOT_TAKEN,
        "The receiver is overloaded. Retry-After is honoured and the endpoint is throttled.",
        throttle=True,
        sick=True,
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
        sick=True,
    ),
    Row(
        "not_sent",
        NOT_SENT,
        ((0, 0),),
        Effect.NOT_TAKEN,
        "Proven that the receiver cannot hold a complete request. Tried again by schedule.",
        sick=True,
    ),
    Row("unknown", UNKNOWN, ((0, 0),), Effect.AMBIGUOUS, "Nobody can say whether the receiver took it.", sick=True),
)
"""What the wire says by itself."""
CONFLICT = Row(
    "accepted",
    ANSWERED,
    ((409, 409),),
    Effect.ACCEPTED,
    "Where the endpoint's settings say that 409 means it had it already.",
    status_shown="409, by the endpoint's word",
)
ABORTED = Row(
    "aborted",
    ANSWERED,
    ((300, 499),),
    Effect.FINAL,
    "The receiver will not take this event. The delivery fails. (With a status that may have acted, it becomes unknown "
    "and is not tried again.)",
    status_shown="300 to 499 and 503, with `webhook-delivery: abort-message`",
)
WISHES: tuple[Row, ...] = (CONFLICT, ABORTED)
"""What an endpoint, or its receiver in an answer, says besides."""
EVERY_ROW: tuple[Row, ...] = (*ROWS, *WISHES)

CONTROL = "webhook-delivery"
"""The response header by which a receiver says how to go on: `abort-message`, `disable`, or both with a comma."""


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
    verdict: str,
    http_status: int | None,
    headers: Sequence[tuple[str, str]],
    *,
    conflict_accepts: bool = False,
    now: float | None = None,
) -> Judgement:
    """The row for one attempt, and what the receiver asks for beside its status. `conflict_accepts` is the endpoint's
    promise about 409. `now` is Unix seconds, used only for a `Retry-After` date without a `Date` beside it.

    A receiver may refuse before it read the whole request: such an attempt is `not_sent`, yet its 410, 429 or 503, and
    what it asks for, still speak about the endpoint and are heard.
    """
    answer = None if http_status is None else _ANSWERED.get(http_status)
    if verdict == ANSWERED:
        row = answer or _OTHER[UNKNOWN]  # an informational status is no answer
        if conflict_accepts and http_status == CONFLICT.ranges[0][0]:
            row = CONFLICT
    elif verdict == NOT_SENT and answer is not None and (answer.throttle or answer.disables):
        row = answer
    else:
        row = _OTHER[verdict]
    asked = _asked(headers) if answer is not None else frozenset()
    if row.effect is Effect.ACCEPTED and "disable" not in asked:
        return _ACCEPTED
    # Beside a 2xx it means nothing, also beside one that came too early to be believed.
    abort = "abort-message" in asked and row.effect is not Effect.ACCEPTED and answer is not ROWS[0]
    if abort and row.effect is Effect.NOT_TAKEN:
        row = ABORTED
    disable = f"The receiver answered {http_status} Gone." if row.disables else None
    if "disable" in asked:
        disable = disable or f"The receiver asked for it ({CONTROL}: disable)."
    return Judgement(
        classification=row.classification,
        effect=row.effect,
        retry_after_s=retry_after_seconds(headers, now=now) if row.throttle else None,
        disable_endpoint=disable,
        throttle=row.throttle,
        sick=row.sick,
        slow=row.slow,
        no_more=abort,
    )


_ACCEPTED = Judgement("accepted", Effect.ACCEPTED)


def _asked(headers: Sequence[tuple[str, str]]) -> frozenset[str]:
    """What the receiver asks for in its answer, in lower case."""
    values = [value for name, value in headers if name.lower() == CONTROL]
    return frozenset(word.strip().lower() for value in values for word in value.split(","))


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
