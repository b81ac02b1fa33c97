"""Changes of one endpoint at the same time."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from deliveries import authorization
from deliveries.endpoints import update
from deliveries.models import Endpoint
from tests.support.deliveries import endpoint

pytestmark = pytest.mark.usefixtures("emptied")

EACH = 10


def test_two_who_set_different_secret_headers_do_not_undo_each_other(tenant: str) -> None:
    row, _ = endpoint(tenant, "http://127.0.0.1:9/")
    begin = threading.Barrier(2)

    def change(name: str) -> None:
        try:
            begin.wait(10)
            for number in range(EACH):
                update(tenant, row.pk, {"secret_headers": {f"X-{name}-{number}": name}})
        finally:
            connections.close_all()

    threads = [threading.Thread(target=change, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(authorization.secret_headers(Endpoint.objects.get(pk=row.pk))) == 2 * EACH
