"""Filters by the one word that users see for where a delivery stands."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import Exists, F, OuterRef, Q

from deliveries.api.schemas import DeliveryStatus
from ledger.models import Operation
from ledger.states import OperationStatus

_WORDS: Mapping[DeliveryStatus, Q] = {
    "pending": Q(status=OperationStatus.PREPARED, attempts=0),
    "retrying": Q(status=OperationStatus.PREPARED, attempts__gt=0),
    "sending": Q(status=OperationStatus.DISPATCHING),
    "unknown": Q(status=OperationStatus.UNKNOWN),
    "delivered": Q(status=OperationStatus.SUCCEEDED),
    "failed": Q(status=OperationStatus.FAILED_FINAL),
    "cancelled": Q(status=OperationStatus.CANCELLED),
}

SHORT_PAGES = "A page may be short, or empty, although there is a next one: go on while `next_cursor` is not null."


def of_delivery(word: DeliveryStatus) -> Exists:
    """Whether a task's active run has an operation that stands there."""
    return Exists(Operation.objects.filter(_WORDS[word], run_id=OuterRef("active_run_id")))


def of_event(word: DeliveryStatus) -> Exists:
    """Whether some delivery of an event stands there."""
    return Exists(
        Operation.objects.filter(
            _WORDS[word], run__task__event_id=OuterRef("event_id"), run__task__active_run_id=F("run_id")
        )
    )
