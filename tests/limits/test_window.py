"""The window of an endpoint holds exactly, also among what is due at the very same moment."""

from __future__ import annotations

import pytest

from deliveries.health import Watch
from tests.limits.hands import accepted, ago, change_operation, claimed, endpoint, settle
from tests.support import ledger_rows

pytestmark = pytest.mark.django_db


def test_what_is_in_flight_counts_among_what_is_due_at_the_same_moment() -> None:
    to = endpoint(in_flight=5)
    same = None
    for one in accepted(to, 40):
        if same is None:
            change_operation(one, due_at=ago(5))
            same = one.pointer.due_at
        for table in ("ledger_operation", "ledger_dispatch"):
            ledger_rows.change(table, {"operation_key": one.operation_key}, due_at=same)
    first = claimed()
    assert len(first) == 5
    assert claimed(owner="other/1/a") == []
    settle(first[:2], 200, watch=Watch())
    assert len(claimed(owner="other/1/a")) == 2
    assert claimed() == []
