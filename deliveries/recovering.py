"""Recovery: deliver once more what is over, by a filter. The walk follows their keys, which rise with time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deliveries import ids
from deliveries.queries import DELIVERIES
from deliveries.steps import JobRow, Step
from ledger.managers import task
from ledger.outcome import Applied
from ledger.states import OperationStatus, RunReason

STRETCH = 1_000
"""Deliveries that one step looks at, at most."""
STATUSES: Mapping[str, str] = {
    "failed": OperationStatus.FAILED_FINAL,
    "cancelled": OperationStatus.CANCELLED,
    "delivered": OperationStatus.SUCCEEDED,
}
"""What may be recovered. What is unknown, or goes on, is not over."""
_APART = timedelta(seconds=1)
"""A delivery's key and its time are read from one clock, one after the other."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which deliveries: accepted from `since` and before `until`, of these types (patterns; none: all) and statuses,
    to one endpoint or to all of the tenant's."""

    since: datetime
    until: datetime
    types: tuple[str, ...]
    statuses: tuple[str, ...]
    endpoint_id: uuid.UUID | None

    def as_json(self) -> dict[str, Any]:
        """As a job keeps it."""
        return {
            "since": _moment(self.since),
            "until": _moment(self.until),
            "types": list(self.types),
            "status": list(self.statuses),
            "endpoint_id": None if self.endpoint_id is None else ids.render(ids.ENDPOINT, self.endpoint_id),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Filter:
        """The other way round."""
        endpoint = kept["endpoint_id"]
        return cls(
            since=datetime.fromisoformat(kept["since"]),
            until=datetime.fromisoformat(kept["until"]),
            types=tuple(kept["types"]),
            statuses=tuple(kept["status"]),
            endpoint_id=None if endpoint is None else ids.parse(ids.ENDPOINT, endpoint),
        )


@dataclass(frozen=True, slots=True)
class _Row:
    walked: int
    walked_to: uuid.UUID | None
    to_last: int
    more: bool
    task_id: uuid.UUID | None


def step(job: JobRow, most: int) -> Step:
    """Look at a stretch of deliveries, in the transaction that moves the job, and open a run for up to `most` of them.

    Each is looked at once, so none is replayed twice by one job. One that is not over any more by then is skipped.
    """
    wanted = Filter.from_json(json.loads(job.parameters))
    asked = {
        "tenant_id": job.tenant_id,
        "after": job.position or ids.first_at(wanted.since - _APART),
        "before": ids.first_at(wanted.until + _APART),
        "since": wanted.since,
        "until": wanted.until,
        "types": list(wanted.types),
        "statuses": [STATUSES[one] for one in wanted.statuses],
        "stretch": STRETCH,
        "most": most,
    }
    if wanted.endpoint_id is None:
        rows = DELIVERIES["recovery.of_tenant"].rows(_Row, asked)
    else:
        rows = DELIVERIES["recovery.of_endpoint"].rows(_Row, asked | {"endpoint_id": wanted.endpoint_id})
    found = [row.task_id for row in rows if row.task_id is not None]
    whole = len(found) < most
    position = rows[0].walked_to if whole else found[-1]
    changed = 0 if job.dry_run or not found else _replay(found)
    return Step(
        position=position,
        walked=rows[0].walked if whole else rows[0].to_last,
        matched=len(found),
        changed=changed,
        skipped=0 if job.dry_run else len(found) - changed,
        done=whole and not rows[0].more,
    )


def _replay(task_ids: list[uuid.UUID]) -> int:
    answers = task.open_run(task_ids, reason=RunReason.RECOVER)
    return sum(isinstance(answer, Applied) for answer in answers.values())


def progress(kept: Mapping[str, Any], position: uuid.UUID | None) -> float:
    """How far a walk has come, from 0 to 1: by the time of the last delivery that it looked at."""
    if position is None:
        return 0.0
    wanted = Filter.from_json(kept)
    at = datetime.fromtimestamp((position.int >> 80) / 1000, UTC)
    share = (at - wanted.since) / (wanted.until - wanted.since)
    return round(min(max(share, 0.0), 1.0), 4)


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()
