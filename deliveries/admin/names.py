"""The public id of an operation."""

from __future__ import annotations

from ledger.identity import compose
from ledger.models import Operation


def operation_id(tenant_id: str, operation: Operation) -> str:
    """`tenant/run/step/effect_version`."""
    return compose(tenant_id, operation.run_id, operation.step_id, operation.effect_version)
