"""What a step of a job is told, and what it answers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as its step finds it. `parameters` is JSON; `position` the last row that was looked at."""

    job_id: uuid.UUID
    tenant_id: str
    kind: str
    dry_run: bool
    parameters: str
    status: str
    revision: int
    position: uuid.UUID | None
    per_second: int | None
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """What one step came to: how many rows it looked at, was to change, changed, and could not change."""

    position: uuid.UUID | None
    walked: int
    matched: int
    changed: int
    skipped: int
    done: bool
    """The walk has come to its end."""
