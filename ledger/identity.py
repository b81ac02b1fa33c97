"""The public id of an operation: `tenant/run/step/effect_version`, composed on the way out and parsed on the way in."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

_STEP = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_VERSION = re.compile(r"[1-9][0-9]{0,8}\Z")


class MalformedOperationId(ValueError):
    """The text is not of the form tenant/run/step/effect_version."""


@dataclass(frozen=True, slots=True)
class OperationId:
    """The parts of an operation's identity, which are unique together."""

    tenant_id: str
    run_id: uuid.UUID
    step_id: str
    effect_version: int

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.run_id}/{self.step_id}/{self.effect_version}"


def compose(tenant_id: str, run_id: uuid.UUID, step_id: str, effect_version: int) -> str:
    """`default/0199…-…/deliver/1`."""
    return f"{tenant_id}/{run_id}/{step_id}/{effect_version}"


def parse(text: str) -> OperationId:
    """The parts of an operation id; `MalformedOperationId` when it is not exactly what `compose` would write."""
    parts = text.split("/")
    if len(parts) == 4 and _TENANT.match(parts[0]) and _STEP.match(parts[2]) and _VERSION.match(parts[3]):
        try:
            run_id = uuid.UUID(parts[1])
        except ValueError:
            run_id = None
        if run_id is not None and str(run_id) == parts[1]:
            return OperationId(parts[0], run_id, parts[2], int(parts[3]))
    raise MalformedOperationId(f"not an operation id of the form tenant/run/step/effect_version: {text[:120]!r}")
