"""What single events and batches have in common once they were read: the rules of their types, and the commit."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest

from deliveries import event_types
from deliveries.api.errors import ApiError, FieldError, invalid, malformed
from deliveries.submit import Accepted, FiltersChanging, IdempotencyConflict, NewEvent, remembered, submit


def announced(request: HttpRequest, most: int) -> int:
    """The length of the body, before it is read; `ApiError` 411 when it is not told, 413 when it is over `most`."""
    try:
        length = int(request.headers.get("Content-Length") or 0)
    except ValueError:
        raise malformed("Content-Length is not a number.") from None
    if not length and request.headers.get("Transfer-Encoding"):
        raise ApiError(411, "Send the body with a Content-Length.")
    if length > most:
        raise ApiError(413, f"The body has {length} bytes; at most {most} are accepted.")
    return length


def take(tenant_id: str, events: Sequence[NewEvent], key_field: str) -> list[Accepted | ApiError]:
    """Commit those of a tenant's events that may be accepted, all at once, and say of each what became of it.

    `ApiError` 503 is raised, and nothing was stored, when nothing could be for the moment.
    """
    problems = event_types.refusals(tenant_id, [(event.type, event.payload) for event in events])
    # A producer who asks again for what he was promised is not refused for a rule that was made since.
    refused = [place for place, problem in enumerate(problems) if problem is not None]
    before = dict(zip(refused, remembered([events[place] for place in refused]), strict=True))
    fine = [event for event, problem in zip(events, problems, strict=True) if problem is None]
    try:
        answers = iter(submit(fine) if fine else [])
    except FiltersChanging as changing:
        raise ApiError(503, f"Nothing was stored: {changing}.", headers={"Retry-After": "1"}) from changing
    taken: list[Accepted | ApiError] = []
    for place, problem in enumerate(problems):
        if problem is not None:
            taken.append(before[place] or invalid(FieldError(field=problem.field, detail=problem.detail)))
            continue
        answer = next(answers)
        taken.append(_conflict(answer, key_field) if isinstance(answer, IdempotencyConflict) else answer)
    return taken


def _conflict(outcome: IdempotencyConflict, key_field: str) -> ApiError:
    """The refusal of an event whose key, or id, is another event's."""
    return ApiError(
        409,
        f"This {'id' if outcome.by_id else key_field} was used for {outcome.id}, which has other content.",
        code="id_conflict" if outcome.by_id else "idempotency_conflict",
    )
