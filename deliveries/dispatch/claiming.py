"""Claim: take a batch of due deliveries, with all that is needed to send them, in one short transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from math import inf

from deliveries import failpoints, ids
from deliveries.dispatch import vouching
from deliveries.failpoints import Point
from deliveries.models import Endpoint
from deliveries.queries import DELIVERIES
from ledger.managers import operation, run, unknown
from ledger.managers.operation import Claimed, Proof, Settlement
from ledger.outcome import Applied
from ledger.statements import in_transaction

FIRST = uuid.UUID(int=0)
STEPS = 64
"""How many endpoints one statement visits at most: one index seek each."""
STRETCHES = 8
"""How many such stretches one call walks at most while it finds nothing."""


@dataclass(frozen=True, slots=True)
class _PickRow:
    walked_to: uuid.UUID | None
    steps: int
    endpoints: int
    token_in_s: float | None
    operation_key: int | None
    probing: bool | None


@dataclass(frozen=True, slots=True)
class Content:
    """An event as it is sent."""

    event_id: uuid.UUID
    client_id: str | None
    type: str
    payload: bytes
    headers: str | None
    created_at: datetime
    deliver_at: datetime | None
    expunged: bool = False

    @property
    def id(self) -> str:
        """The event's public id."""
        return self.client_id or ids.render(ids.EVENT, self.event_id)


@dataclass(slots=True)
class Delivery:
    """A claimed delivery in this dispatcher's hands. `claimed_at` and `expires_at` are monotonic seconds, and earlier
    than the database's own times: the statement had not begun yet when the clock was read."""

    claim: Claimed
    content: Content
    endpoint: Endpoint
    claimed_at: float
    expires_at: float
    probing: bool = False
    """The breaker of its endpoint was not closed: what comes of it decides."""
    sent_at: float | None = None

    @property
    def key(self) -> int:
        return self.claim.operation_key

    def moment(self, monotonic: float) -> datetime:
        """A moment of this process on the database's clock, by the claim's time there: no worker clock is used."""
        return self.claim.dispatched_at + timedelta(seconds=monotonic - self.claimed_at)

    def age_s(self, monotonic: float) -> float:
        """Seconds since the delivery was first due."""
        made, wanted = self.content.created_at, self.content.deliver_at
        return (self.moment(monotonic) - (made if wanted is None else max(made, wanted))).total_seconds()


@dataclass(slots=True)
class Walk:
    """Where a dispatcher's walk over the endpoints stands, and which share of their rows it begins with."""

    number: int = 0
    dispatchers: int = 1
    cursor: uuid.UUID = FIRST
    started_at_first: bool = True
    open_endpoints: int = 0
    token_in_s: float = inf
    """In how many seconds the first of those that only wait for their rate limit may go; inf when none does."""


class Found(Enum):
    """What a walk over the endpoints came to."""

    WORK = "work"
    MORE = "more"  # nothing in the stretch that was walked: walk on
    BUSY = "busy"  # something is due, but its windows are full, or another dispatcher is taking it
    PACED = "paced"  # what is due waits for its rate limit, all of it: `Walk.token_in_s`
    NOTHING = "nothing"


def claim(walk: Walk, *, owner: str, batch: int, ttl_ms: int) -> tuple[list[Delivery], Found]:
    """Claim up to `batch` due deliveries under leases of `ttl_ms`; and what the walk came to.

    Guarantee: each is on record as claimed by `owner` (epoch, revision, attempt number) before this returns, so before
    a byte of it can be sent. Limit: one call walks a bounded number of endpoints.
    """
    came_round, busy = False, False
    walk.token_in_s = inf
    for _ in range(STRETCHES):
        found = _claim_stretch(walk, owner, batch, ttl_ms)
        if found:
            return found, Found.WORK
        busy = busy or walk.open_endpoints > 0
        if walk.cursor == FIRST:
            if came_round or walk.started_at_first:
                waiting = Found.NOTHING if walk.token_in_s == inf else Found.PACED
                return [], Found.BUSY if busy else waiting
            came_round = True
    return [], Found.MORE


def _claim_stretch(walk: Walk, owner: str, batch: int, ttl_ms: int) -> list[Delivery]:
    def work() -> tuple[list[Claimed], dict[uuid.UUID, Content], dict[uuid.UUID, Endpoint], set[int], uuid.UUID]:
        picked = DELIVERIES["dispatch.pick_due"].rows(
            _PickRow,
            {
                "cursor": walk.cursor,
                "steps": STEPS,
                "batch": batch,
                "number": walk.number,
                "dispatchers": walk.dispatchers,
            },
        )
        following = picked[0].walked_to if picked[0].steps == STEPS and picked[0].walked_to else FIRST
        walk.open_endpoints = picked[0].endpoints
        walk.token_in_s = min(walk.token_in_s, inf if picked[0].token_in_s is None else picked[0].token_in_s)
        keys = [row.operation_key for row in picked if row.operation_key is not None]
        if not keys:
            return [], {}, {}, set(), following
        claims, _ = operation.claim(keys, owner=owner, ttl_ms=ttl_ms)
        claims = _without_the_taken(claims, owner)
        contents = {
            content.event_id: content
            for content in DELIVERIES["event.contents"].rows(
                Content, {"event_ids": list({claim.request_ref for claim in claims})}
            )
        }
        claims = _without_the_expunged(claims, contents, owner)
        endpoints = Endpoint.objects.in_bulk({claim.endpoint_id for claim in claims})
        if claims:
            failpoints.reach(Point.IN_CLAIM)
        probing = {row.operation_key for row in picked if row.operation_key is not None and row.probing}
        return claims, contents, endpoints, probing, following

    walk.started_at_first = walk.cursor == FIRST
    claimed_at = time.monotonic()
    claims, contents, endpoints, probing, walk.cursor = in_transaction(work)
    expires_at = claimed_at + ttl_ms / 1000
    return [
        Delivery(
            claim,
            contents[claim.request_ref],
            endpoints[claim.endpoint_id],
            claimed_at,
            expires_at,
            probing=claim.operation_key in probing,
        )
        for claim in claims
    ]


def _without_the_expunged(claims: list[Claimed], contents: Mapping[uuid.UUID, Content], owner: str) -> list[Claimed]:
    """What there is something to send of. A replay may have begun while the content was removed: its claim is given
    back unsent and its run cancelled, in the claim's own transaction."""
    gone = [claim for claim in claims if contents[claim.request_ref].expunged]
    if not gone:
        return claims
    operation.settle([Settlement(claim, Proof.UNSENT, retry_ms=0, window_ms=None) for claim in gone], owner=owner)
    run.cancel([claim.run_id for claim in gone])
    return [claim for claim in claims if not contents[claim.request_ref].expunged]


def _without_the_taken(claims: list[Claimed], owner: str) -> list[Claimed]:
    """What is claimed and must be sent. What is on record as taken by an earlier send ends here, in the claim's own
    transaction: given back unsent, and succeeded."""
    again = {claim.operation_key: claim for claim in claims if claim.attempts > 1}
    taken = vouching.vouched(list(again)) if again else {}
    if not taken:
        return claims
    settlements = [Settlement(again[key], Proof.UNSENT, retry_ms=0, window_ms=None) for key in taken]
    for key, answer in operation.settle(settlements, owner=owner).items():
        assert isinstance(answer, Applied), "it was claimed in this transaction"
        unknown.converge(
            operation_key=key,
            revision=answer.row.revision,
            proof=Proof.ACCEPTED,
            retry_ms=None,
            actor=taken[key].by,
            evidence=taken[key].as_json(),
        )
    return [claim for claim in claims if claim.operation_key not in taken]
