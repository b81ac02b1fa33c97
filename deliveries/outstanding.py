"""What is still out: requests to an endpoint that were made of what its row said before a moment.

A claim, and a question, read the endpoint when they are made; what they made of it may be on its way for as long as
they last. `await_sent_before` is for whoever changed the row and must know that nothing follows the former any more.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass

from django.db import Error as DatabaseError

from deliveries import ids
from deliveries.queries import ASKING, DELIVERIES

log = logging.getLogger("relay.secrets")

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class _Boundary:
    boundary: int


@dataclass(frozen=True, slots=True)
class _Before:
    over: bool
    operation_key: int | None
    revision: int | None
    pid: int | None
    lock_key: int | None


@dataclass(frozen=True, slots=True)
class _Claim:
    operation_key: int
    revision: int


@dataclass(frozen=True, slots=True)
class _Question:
    pid: int
    lock_key: int


def await_sent_before(endpoint_id: uuid.UUID, *, patience_s: float) -> bool:
    """Wait until no request to an endpoint is out any more that was made of what its row said before this call.

    False when that is not so after `patience_s`, or the database did not answer. Made outside of a transaction.
    """
    until = time.monotonic() + patience_s
    try:
        (edge,) = DELIVERIES["outstanding.boundary"].rows(_Boundary)
        out: tuple[list[_Claim], list[_Question]] | None = None
        while True:
            out = _sent_before(endpoint_id, edge.boundary) if out is None else _still_out(*out)
            if out is not None and not any(out):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
    except DatabaseError as error:
        # What was committed stays, and the caller goes on all the same: it may have a secret to tell.
        name = ids.render(ids.ENDPOINT, endpoint_id)
        log.warning("whether requests to %s from before are out is not known: %s", name, type(error).__name__)
        return False


def _sent_before(endpoint_id: uuid.UUID, boundary: int) -> tuple[list[_Claim], list[_Question]] | None:
    rows = DELIVERIES["outstanding.sent_before"].rows(
        _Before, {"boundary": boundary, "endpoint_id": endpoint_id, "kind": ASKING}
    )
    if not rows[0].over:
        return None
    return (
        [_Claim(one.operation_key, one.revision) for one in rows if one.operation_key and one.revision is not None],
        [_Question(one.pid, one.lock_key) for one in rows if one.pid is not None and one.lock_key is not None],
    )


def _still_out(claims: list[_Claim], questions: list[_Question]) -> tuple[list[_Claim], list[_Question]]:
    if claims:
        claims = DELIVERIES["outstanding.still_claimed"].rows(
            _Claim,
            {
                "operation_keys": [one.operation_key for one in claims],
                "revisions": [one.revision for one in claims],
            },
        )
    if questions:
        questions = DELIVERIES["outstanding.still_asking"].rows(
            _Question,
            {
                "pids": [one.pid for one in questions],
                "lock_keys": [one.lock_key for one in questions],
                "kind": ASKING,
            },
        )
    return claims, questions
