"""`/v1/operations` and `/v1/deliveries`: what is known, and a person's decision about what is not."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.managers import unknown
from ledger.managers.operation import Proof
from ledger.models import Resolution
from tests.api import rows
from tests.api.rows import Caller

pytestmark = pytest.mark.django_db

SHOWN = {
    "id", "status", "revision", "run_id", "delivery_id", "event_id", "endpoint_id", "attempts", "due_at",
    "dispatch_owner", "dispatch_until", "ambiguous",
}  # fmt: skip


def one(by: Caller) -> str:
    """The id of a prepared operation."""
    target = rows.endpoint(by)
    found = rows.deliveries_of(by, rows.event(by))
    return str(next(delivery for delivery in found if delivery["endpoint_id"] == target)["operation_id"])


def statuses(by: Caller, status: str) -> list[str]:
    return [operation["id"] for operation in by.get(f"/v1/operations?status={status}").json()["items"]]


def test_an_unknown_operation_is_shown_with_its_evidence(mine: Caller) -> None:
    operation = rows.unknown(mine)
    shown = mine.get(f"/v1/operations/{operation}").json()
    assert set(shown) >= SHOWN
    assert shown["id"] == operation
    assert (shown["status"], shown["ambiguous"], shown["attempts"]) == ("unknown", True, 1)
    assert shown["unknown_since"] is not None
    (attempt,) = shown["attempt_records"]
    assert (attempt["number"], attempt["verdict"], attempt["evidence"]) == (1, "unknown", {"request_complete": True})
    assert shown["resolutions"] == []
    assert mine.get(f"/v1/operations/{operation.replace('/', '%2F')}").json() == shown


def test_operations_are_found_by_status(mine: Caller) -> None:
    ambiguous, prepared, sending, taken, refused = rows.unknown(mine), one(mine), one(mine), one(mine), one(mine)
    rows.claim(sending)
    rows.settle(rows.claim(taken), Proof.ACCEPTED)
    rows.settle(rows.claim(refused), Proof.FINAL)
    every = [operation["id"] for operation in mine.get("/v1/operations").json()["items"]]
    assert statuses(mine, "unknown") == [ambiguous]
    assert statuses(mine, "dispatching") == [sending]
    assert statuses(mine, "succeeded") == [taken]
    assert statuses(mine, "failed_final") == [refused]
    assert statuses(mine, "cancelled") == []
    assert prepared in statuses(mine, "prepared")
    assert set(statuses(mine, "prepared")) == set(every) - {ambiguous, sending, taken, refused}
    wrong = mine.get("/v1/operations?status=lost")
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "status")


def test_the_queue_of_unknown_operations_has_pages(mine: Caller) -> None:
    made = [rows.unknown(mine) for _ in range(3)]
    first = mine.get("/v1/operations?status=unknown&limit=2").json()
    second = mine.get(f"/v1/operations?status=unknown&limit=2&cursor={first['next_cursor']}").json()
    assert [operation["id"] for operation in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("decision", "status", "delivery"),
    [("succeeded", "succeeded", "delivered"), ("failed", "failed_final", "failed"), ("retry", "unknown", "unknown")],
)
def test_a_person_settles_an_unknown_operation(decision: str, status: str, delivery: str, mine: Caller) -> None:
    operation = rows.unknown(mine)
    seen = mine.get(f"/v1/operations/{operation}").json()
    answer = mine.post(
        f"/v1/operations/{operation}/resolve",
        {"decision": decision, "reason": "Asked them: ticket 7.", "revision": seen["revision"]},
    )
    assert answer.status_code == 200, answer.content
    now = answer.json()
    assert (now["status"], now["revision"]) == (status, seen["revision"] + 1)
    assert (now["due_at"] is not None) == (decision == "retry")
    (resolution,) = now["resolutions"]
    assert resolution["decision"] == decision
    assert resolution["reason"] == "Asked them: ticket 7."
    assert resolution["actor"].startswith("a test (key_")
    assert mine.get(f"/v1/deliveries/{seen['delivery_id']}").json()["status"] == delivery


def test_the_second_of_two_people_sees_what_the_first_decided(mine: Caller) -> None:
    operation = rows.unknown(mine)
    revision = mine.get(f"/v1/operations/{operation}").json()["revision"]
    path = f"/v1/operations/{operation}/resolve"
    first = mine.post(path, {"decision": "succeeded", "reason": "Seen in their ledger.", "revision": revision})
    before = rows.row_counts()
    second = mine.post(path, {"decision": "failed", "reason": "Not seen.", "revision": revision})
    assert (second.status_code, second.json()["code"]) == (409, "conflict")
    now = second.json()["current"]
    assert (now["status"], now["revision"]) == ("succeeded", first.json()["revision"])
    assert now["resolutions"] == first.json()["resolutions"]
    assert "Seen in their ledger." in second.json()["detail"]
    assert rows.row_counts() == before


def test_a_stale_revision_and_an_operation_that_is_not_unknown_are_conflicts(mine: Caller) -> None:
    operation, prepared, sent_again = rows.unknown(mine), one(mine), rows.unknown(mine)
    mine.post(
        f"/v1/operations/{sent_again}/resolve",
        {
            "decision": "retry",
            "reason": "They drop duplicates.",
            "revision": mine.get(f"/v1/operations/{sent_again}").json()["revision"],
        },
    )
    rows.claim(sent_again)
    before = Resolution.objects.count()
    for target, shift in ((operation, -1), (operation, 1), (prepared, 0), (sent_again, 0)):
        shown = mine.get(f"/v1/operations/{target}").json()
        answer = mine.post(
            f"/v1/operations/{target}/resolve",
            {"decision": "failed", "reason": "x", "revision": shown["revision"] + shift},
        )
        assert answer.status_code == 409, answer.content
        assert answer.json()["current"] == shown
    assert Resolution.objects.count() == before


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"decision": "maybe"}, "decision"),
        ({"decision": None}, "decision"),
        ({"reason": ""}, "reason"),
        ({"reason": "  \n"}, "reason"),
        ({"reason": "\u0000"}, "reason"),
        ({"reason": "x" * 2001}, "reason"),
        ({"revision": "2"}, "revision"),
        ({"revision": -1}, "revision"),
        ({"revision": 2**63}, "revision"),
        ({"actor": "the boss"}, "actor"),
    ],
)
def test_a_bad_decision_is_named_and_decides_nothing(changes: dict[str, Any], field: str, mine: Caller) -> None:
    operation = rows.unknown(mine)
    shown = mine.get(f"/v1/operations/{operation}").json()
    good = {"decision": "failed", "reason": "x", "revision": shown["revision"]}
    answer = mine.post(f"/v1/operations/{operation}/resolve", good | changes)
    assert answer.status_code == 422, answer.content
    assert field in [error["field"] for error in answer.json()["errors"]]
    for name in good:
        missing = mine.post(f"/v1/operations/{operation}/resolve", {k: v for k, v in good.items() if k != name})
        assert [error["field"] for error in missing.json()["errors"]] == [name]
    assert mine.post(f"/v1/operations/{operation}/resolve", b"{").status_code == 400
    assert mine.get(f"/v1/operations/{operation}").json() == shown


def test_a_delivery_is_named_by_what_became_of_it(mine: Caller) -> None:
    def status(operation: str) -> str:
        delivery = mine.get(f"/v1/operations/{operation}").json()["delivery_id"]
        return str(mine.get(f"/v1/deliveries/{delivery}").json()["status"])

    operation = one(mine)
    assert status(operation) == "pending"
    claimed = rows.claim(operation)
    assert status(operation) == "sending"
    rows.settle(claimed, Proof.NOT_TAKEN, retry_ms=0)
    assert status(operation) == "retrying"
    rows.settle(rows.claim(operation), Proof.ACCEPTED)
    assert status(operation) == "delivered"
    assert status(rows.unknown(mine)) == "unknown"


def test_a_delivery_shows_its_whole_life(mine: Caller) -> None:
    operation = one(mine)
    lost = rows.claim(operation, "worker-1")
    rows.let_lease_expire(lost)
    delivery_id = mine.get(f"/v1/operations/{operation}").json()["delivery_id"]
    (run,) = mine.get(f"/v1/deliveries/{delivery_id}").json()["runs"]
    assert (run["lease"]["owner"], run["lease"]["epoch"], run["lease"]["overdue"]) == ("worker-1", 1, True)
    assert (run["active"], run["status"], run["reason"]) == (True, "running", "submit")

    unknown.expire_claims(batch=10, owner="reconciler-1")
    rows.settle(lost, Proof.ACCEPTED, "worker-1")
    shown = mine.get(f"/v1/deliveries/{delivery_id}").json()
    assert shown["id"] == delivery_id
    assert shown["status"] == "unknown"
    assert [one["id"] for one in shown["operations"]] == [operation]
    assert [one["number"] for one in shown["attempt_records"]] == [1]
    assert [(one["previous_owner"], one["owner"]) for one in shown["takeovers"]] == [("worker-1", "reconciler-1")]
    (fenced,) = shown["fenced_writes"]
    assert (fenced["statement"], fenced["owner"], fenced["operation_id"]) == ("operation.settle", "worker-1", operation)
    assert shown["runs"][0]["lease"]["overdue"] is False


def test_deliveries_are_filtered_by_event_and_endpoint(mine: Caller) -> None:
    first, second = rows.endpoint(mine), rows.endpoint(mine)
    old, new = rows.event(mine), rows.event(mine)

    def found(query: str) -> set[tuple[str, str]]:
        return {(row["event_id"], row["endpoint_id"]) for row in mine.get(f"/v1/deliveries?{query}").json()["items"]}

    assert found("") == {(event, endpoint) for event in (old, new) for endpoint in (first, second)}
    assert found(f"event_id={old}") == {(old, first), (old, second)}
    assert found(f"endpoint_id={second}&event_id={new}") == {(new, second)}
    for field in ("event_id", "endpoint_id"):
        wrong = mine.get(f"/v1/deliveries?{field}=%00")
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, field)


def test_a_free_lease_shows_no_end(mine: Caller) -> None:
    operation = one(mine)
    delivery_id = mine.get(f"/v1/operations/{operation}").json()["delivery_id"]
    (run,) = mine.get(f"/v1/deliveries/{delivery_id}").json()["runs"]
    assert run["lease"] == {"owner": None, "epoch": 0, "acquired_at": None, "expires_at": None, "overdue": False}
