"""Evidence that the reconciler has gone round: it puts right what a test has put wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from ledger.models import Dispatch
from tests.support import deliveries
from tests.support.database import unguarded
from tests.support.waiting import wait_until

EACH_S = 15.0


class Sweeps:
    """A delivery that is due tomorrow, whose queue row is taken away and comes back with the next sweep."""

    def __init__(self, tenant_id: str) -> None:
        deliveries.endpoint(tenant_id, "http://127.0.0.1:9/tomorrow", types=["tomorrow"])
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        (self._canary,) = deliveries.submitted(deliveries.events(tenant_id, type="tomorrow", deliver_at=tomorrow))

    def wait_for(self, count: int) -> None:
        """Wait until `count` whole sweeps have begun and ended after this call.

        The row is put back by a sweep's last step, so the sweep that puts it back first may have begun before.
        """
        for _ in range(count + 1):
            with unguarded(), connection.cursor() as cursor:
                cursor.execute("DELETE FROM ledger_dispatch WHERE operation_key = %s", [self._canary.operation_key])
            wait_until(self._back, EACH_S, "the queue row put back by a sweep")

    def _back(self) -> bool:
        return Dispatch.objects.filter(operation_id=self._canary.operation_key).exists()
