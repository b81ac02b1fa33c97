"""Cancel and replay: what the control plane may do about a delivery, and what it says about what was sent."""

from __future__ import annotations

import pytest
from django.conf import settings

from deliveries.models import Scope
from deliveries.tasks import BELL
from ledger.managers.operation import Proof
from ledger.models import Dispatch
from tests.api import rows
from tests.api.rows import Caller
from tests.api.test_acknowledgements import in_status
from tests.api.test_shape import shaped

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("status", "shown", "words"),
    [
        ("prepared", "cancelled", "nothing of it is on record as taken"),
        ("dispatching", "sending", "what was sent keeps its own truth"),
        ("unknown", "unknown", "nobody knows whether it was taken"),
    ],
)
def test_a_cancel_ends_the_run_and_says_what_was_sent(mine: Caller, status: str, shown: str, words: str) -> None:
    one = in_status(mine, status)
    answer = mine.post(f"/v1/deliveries/{one.delivery_id}/cancel")
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert words in told["detail"]
    assert told["status"] == shown
    assert told["runs"][0]["status"] == "cancelled"
    again = shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/cancel"), 409)
    assert again["current"]["status"] == shown
    assert again["reason"] == "wrong_status"


def test_what_was_in_flight_when_it_was_cancelled_is_still_recorded_and_not_sent_again(mine: Caller) -> None:
    one = in_status(mine, "prepared")
    claimed = one.claim()
    assert mine.post(f"/v1/deliveries/{one.delivery_id}/cancel").status_code == 200
    rows.settle(claimed, Proof.NOT_TAKEN, retry_ms=0)
    assert one.now["status"] == "failed_final"
    assert mine.get(f"/v1/deliveries/{one.delivery_id}").json()["runs"][0]["status"] == "cancelled"


@pytest.mark.parametrize("status", ["succeeded", "failed_final"])
def test_what_is_over_cannot_be_cancelled(mine: Caller, status: str) -> None:
    one = in_status(mine, status)
    body = shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/cancel"), 409)
    assert body["current"]["status"] == {"succeeded": "delivered", "failed_final": "failed"}[status]


@pytest.mark.parametrize("status", ["succeeded", "failed_final", "cancelled"])
def test_a_replay_of_what_is_over_is_a_new_run_with_a_new_operation_and_the_same_event(
    mine: Caller, status: str
) -> None:
    one = in_status(mine, status)
    answer = mine.post(f"/v1/deliveries/{one.delivery_id}/replay")
    assert answer.status_code == 202, answer.content
    told = answer.json()
    assert (told["id"], told["status"]) == (one.delivery_id, "pending")
    assert told["operation_id"] != one.operation_id
    assert [run["reason"] for run in told["runs"]] == ["replay", "submit"]
    assert {each["event_id"] for each in told["operations"]} == {one.now["event_id"]}
    assert one.now["status"] == status, "the old one keeps its row"
    assert Dispatch.objects.filter(run_id=told["run_id"]).exists()
    shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/replay"), 409)


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_is_unknown_is_to_be_resolved_first(mine: Caller, cancelled: bool) -> None:
    one = in_status(mine, "unknown")
    if cancelled:
        assert mine.post(f"/v1/deliveries/{one.delivery_id}/cancel").status_code == 200
    body = shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/replay"), 409)
    assert body["code"] == "unsettled"
    assert "Resolve it first" in body["detail"]
    assert body["current"]["status"] == "unknown"
    decision = {"decision": "failed", "reason": "looked it up", "revision": one.now["revision"]}
    assert mine.post(f"/v1/operations/{one.operation_id}/resolve", decision).status_code == 200
    assert mine.post(f"/v1/deliveries/{one.delivery_id}/replay").status_code == 202


@pytest.mark.parametrize("status", ["prepared", "dispatching"])
def test_what_goes_on_cannot_be_replayed(mine: Caller, status: str) -> None:
    one = in_status(mine, status)
    body = shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/replay"), 409)
    assert body["code"] == "conflict"
    assert body["current"]["run_id"] == one.run_id


def test_a_deleted_endpoint_gets_no_replay(mine: Caller) -> None:
    one = in_status(mine, "succeeded")
    assert mine("DELETE", f"/v1/endpoints/{one.now['endpoint_id']}").status_code == 204
    assert "deleted" in shaped(mine.post(f"/v1/deliveries/{one.delivery_id}/replay"), 409)["detail"]


@pytest.mark.parametrize("verb", ["cancel", "replay"])
def test_both_need_their_scope_and_the_own_tenant(mine: Caller, theirs: Caller, verb: str) -> None:
    one = in_status(mine, "succeeded")
    reader = rows.caller(Scope.READ, Scope.EVENTS_WRITE, Scope.ENDPOINTS_WRITE)
    shaped(reader.post(f"/v1/deliveries/{one.delivery_id}/{verb}"), 403)
    shaped(theirs.post(f"/v1/deliveries/{one.delivery_id}/{verb}"), 404)
    shaped(mine.post(f"/v1/deliveries/dlv_x/{verb}"), 404)


def test_a_replay_rings_and_a_refused_one_does_not(mine: Caller) -> None:
    one, storage = in_status(mine, "succeeded"), settings.HUEY.storage
    storage.pop_data(BELL)
    assert mine.post(f"/v1/deliveries/{one.delivery_id}/replay").status_code == 202
    assert storage.has_data_for_key(BELL)
    storage.pop_data(BELL)
    assert mine.post(f"/v1/deliveries/{one.delivery_id}/replay").status_code == 409
    assert not storage.has_data_for_key(BELL)
