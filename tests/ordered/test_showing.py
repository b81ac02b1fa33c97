"""A line is seen where somebody looks for it: why it stands still, who holds it, and how it is made to go on."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from deliveries import endpoints, ids, lines
from deliveries.audit import WALKS
from deliveries.lines import Hold
from deliveries.models import Endpoint, Scope
from ledger import audit
from ledger.admin.text import database_now
from ledger.models import Resolution, Task
from tests.admin.conftest import sign_in
from tests.api import rows
from tests.api.rows import Caller
from tests.api.test_shape import shaped
from tests.ordered.hands import accepted, answered, claimed, due_now, lost, not_sent, ordered, task_id
from tests.support import ledger_rows
from tests.support.deliveries import Watched

pytestmark = pytest.mark.django_db
TENANT = "default"


@pytest.fixture
def mine(db: None) -> Caller:
    rows.tenant(TENANT)
    return rows.caller()


def dlv(one: Watched) -> str:
    return ids.render(ids.DELIVERY, task_id(one))


def seen(endpoint: Endpoint) -> tuple[Hold, bool]:
    """Why its line stands still, and whether the clock will move it."""
    line = lines.of(endpoint.endpoint_id)
    assert line is not None
    return line.hold, line.until is not None


def test_why_a_line_stands_still(mine: Caller) -> None:
    endpoint = ordered(TENANT, idempotent=False)
    assert lines.of(endpoint.endpoint_id) is None
    first, _ = accepted(TENANT, 2)
    assert seen(endpoint) == (Hold.DUE, False)
    (head,) = claimed()
    assert seen(endpoint) == (Hold.SENDING, False)
    not_sent(head)
    assert seen(endpoint) == (Hold.LATER, True)
    due_now(first)
    Endpoint.objects.filter(pk=endpoint.pk).update(blocked_until=database_now() + timedelta(hours=1))
    assert seen(endpoint) == (Hold.BLOCKED, True)
    Endpoint.objects.filter(pk=endpoint.pk).update(blocked_until=None)
    ledger_rows.insert(
        "deliveries_endpoint_state", endpoint_id=endpoint.pk, opens=1, open_until=ledger_rows.from_now(60_000)
    )
    assert seen(endpoint) == (Hold.BREAKER, True)
    ledger_rows.change("deliveries_endpoint_state", {"endpoint_id": endpoint.pk}, opens=0, open_until=None)
    endpoints.update(TENANT, endpoint.endpoint_id, {"enabled": False})
    assert seen(endpoint) == (Hold.DISABLED, False)
    endpoints.update(TENANT, endpoint.endpoint_id, {"enabled": True})
    (head,) = claimed()
    answered(head, None)
    assert seen(endpoint) == (Hold.UNKNOWN, False)
    ledger_rows.change("ledger_operation", {"operation_key": first.operation_key}, losses=99)
    assert seen(endpoint) == (Hold.QUARANTINED, False)


def test_how_long_a_line_is_and_who_is_the_first(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = ordered(TENANT, order_patience=9)
    first, *_ = accepted(TENANT, 5)
    line = lines.of(endpoint.endpoint_id)
    assert line is not None
    assert (line.length, line.more, line.counted) == (5, False, "5")
    assert (line.task_id, line.operation_id, line.attempts, line.patience) == (
        task_id(first), first.operation_id, 0, 9,
    )  # fmt: skip
    assert (line.since, line.accepted_at) == (None, first.operation.created_at)
    monkeypatch.setattr(lines, "MOST", 3)
    claimed()
    line = lines.of(endpoint.endpoint_id)
    assert line is not None
    assert (line.length, line.more, line.counted) == (3, True, "3+")
    assert line.since == first.operation.first_dispatched_at
    assert (line.status, line.attempts) == ("dispatching", 1)


def test_the_api_shows_who_stands_in_line_and_who_holds_it(mine: Caller) -> None:
    endpoint = ordered(TENANT, idempotent=False)
    first, second = accepted(TENANT, 2)
    (head,) = claimed()
    answered(head, None)
    shown = {one["id"]: one for one in mine.get("/v1/deliveries").json()["items"]}
    assert [(shown[dlv(one)]["in_line"], shown[dlv(one)]["holds_line"]) for one in (first, second)] == [
        (True, True), (True, False),
    ]  # fmt: skip
    (unknown,) = mine.get("/v1/operations?status=unknown").json()["items"]
    assert (unknown["id"], unknown["holds_line"]) == (first.operation_id, True)
    assert mine.get(f"/v1/operations/{second.operation_id}").json()["holds_line"] is False
    line = mine.get(f"/v1/endpoints/{ids.render(ids.ENDPOINT, endpoint.pk)}").json()["line"]
    assert (line["length"], line["delivery_id"], line["hold"]) == (2, dlv(first), "unknown")


def test_a_delivery_is_moved_aside_by_the_api_with_a_reason_that_is_kept(mine: Caller) -> None:
    ordered(TENANT, idempotent=False)
    first, second = accepted(TENANT, 2)
    (head,) = claimed()
    path = f"/v1/deliveries/{dlv(first)}/move-aside"
    refused = shaped(mine.post(path, {"reason": "Now."}), 409)
    assert (refused["reason"], refused["current"]["status"]) == ("claimed", "sending")
    answered(head, None)
    shaped(mine.post(path, {"reason": "  "}), 422)
    shaped(mine.post(path, {}), 422)
    answer = mine.post(path, {"reason": "They look for it."})
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert (told["status"], told["in_line"], told["holds_line"]) == ("unknown", False, False)
    (record,) = told["operations"][0]["resolutions"]
    assert (record["decision"], record["reason"]) == ("moved_aside", "They look for it.")
    assert record["actor"].startswith("a test (key_")
    again = shaped(mine.post(path, {"reason": "Again."}), 409)
    assert again["reason"] == "not_in_line"
    assert mine.get(f"/v1/deliveries/{dlv(second)}").json()["holds_line"] is True


def test_only_who_may_operate_moves_aside_and_only_what_is_his(mine: Caller) -> None:
    ordered(TENANT)
    (first,) = accepted(TENANT)
    path = f"/v1/deliveries/{dlv(first)}/move-aside"
    shaped(rows.caller(Scope.READ, Scope.EVENTS_WRITE).post(path, {"reason": "x"}), 403)
    shaped(rows.caller(tenant=rows.tenant("other")).post(path, {"reason": "x"}), 404)
    assert not Resolution.objects.exists()


def test_a_cancel_by_the_api_lets_the_line_go_on(mine: Caller) -> None:
    ordered(TENANT, idempotent=False)
    first, second = accepted(TENANT, 2)
    (head,) = claimed()
    answered(head, None)
    told = mine.post(f"/v1/deliveries/{dlv(first)}/cancel").json()
    assert (told["status"], told["in_line"]) == ("unknown", False)
    assert [delivery.key for delivery in claimed()] == [second.operation_key]


def test_the_life_of_a_delivery_tells_of_its_line(mine: Caller) -> None:
    ordered(TENANT)
    first, second = accepted(TENANT, 2)

    def told(one: Watched) -> str:
        out = StringIO()
        call_command("explain", dlv(one), stdout=out)
        return out.getvalue()

    assert "It is the first in its endpoint's line" in told(first)
    assert "It stands in its endpoint's line" in told(second)
    lines.leave(task_id(first), actor="user:sam", reason="Lost for good.")
    assert "user:sam moved it aside out of its line: Lost for good." in told(first)
    assert "line" not in told(first).splitlines()[-1]


def test_the_audit_finds_nothing_in_lines_that_grew_stood_and_were_left(mine: Caller) -> None:
    ordered(TENANT, order_patience=1, idempotent=False)
    ordered(TENANT)
    line = accepted(TENANT, 4)
    for delivery in claimed():
        not_sent(delivery)
    assert lines.move_aside().moved == 1
    claimed()
    assert any(one.status == "dispatching" for one in line)
    kinds = [breach for each in audit.walk(WALKS, batch=3, patience_ms=60_000) for breach in each.breaches]
    assert kinds == []


def page(client: Client, name: str, key: Any) -> str:
    answer = client.get(reverse(f"admin:{name}", args=(key,)))
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def test_the_admin_shows_the_line_and_moves_aside_after_a_reason(mine: Caller) -> None:
    endpoint = ordered(TENANT, idempotent=False)
    first, second = accepted(TENANT, 2)
    claimed()
    lost(first)
    root = sign_in("root", (), superuser=True)
    shown = page(root, "deliveries_endpoint_change", endpoint.pk)
    assert "Its line" in shown
    assert "Nobody knows what became of the first one." in shown
    assert "Holds the line" in page(root, "ledger_task_change", task_id(first))
    assert "and is sent when it is the first there" in page(root, "ledger_task_change", task_id(second))
    assert "It holds the line of its endpoint" in page(root, "ledger_operation_change", first.operation_key)
    assert "Holds the line" in root.get(reverse("admin:ledger_dispatch_changelist")).content.decode()
    url = reverse("admin:ledger_task_move_aside", args=(task_id(first),))
    assert url in page(root, "ledger_task_change", task_id(first))
    assert "does not come back into the line" in page(root, "ledger_task_move_aside", task_id(first))
    assert root.post(url, {"reason": " "}).status_code == 422
    assert Task.objects.get(pk=task_id(first)).in_line
    assert root.post(url, {"reason": "They look for it."}).status_code == 302
    assert Resolution.objects.get().actor == "user:root"
    assert root.post(url, {"reason": "Again."}).status_code == 409
    assert "Moved aside out of its line" in page(root, "ledger_task_change", task_id(first))


def test_who_may_not_resolve_sees_the_line_and_moves_nothing(mine: Caller) -> None:
    ordered(TENANT)
    (first,) = accepted(TENANT)
    viewer = sign_in("viewer", ("ledger.view_task",))
    url = reverse("admin:ledger_task_move_aside", args=(task_id(first),))
    assert url not in page(viewer, "ledger_task_change", task_id(first))
    assert viewer.post(url, {"reason": "x"}).status_code == 403
    assert Task.objects.get(pk=task_id(first)).in_line
