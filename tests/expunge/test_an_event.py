"""`POST /v1/events/{id}/expunge`: nothing of the content is left anywhere, and the ledger is as it was."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from deliveries import expunging
from deliveries.acknowledgements import Said
from deliveries.audit import WALKS
from deliveries.dispatch import claiming, settling
from deliveries.dispatch.claiming import Walk
from deliveries.models import Acknowledgement, Attempt, Event, Job
from ledger import audit
from ledger.models import FencedWrite, Operation
from ledger.outcome import Applied, Rejected
from tests.api import rows
from tests.api.rows import Caller, let_lease_expire
from tests.expunge.lived import (
    MARKER,
    OWNER,
    REASON,
    TTL_MS,
    answered,
    claim,
    key_of,
    last_error,
    places,
    say,
    settle,
    submit,
)
from tests.support import ledger_rows

pytestmark = pytest.mark.django_db

CONTENT = {
    "deliveries_event.payload", "deliveries_event.metadata", "deliveries_event.headers", "deliveries_event.source",
    "deliveries_attempt.response_headers", "deliveries_attempt.response_body", "deliveries_attempt.error",
    "deliveries_acknowledgement.detail", "deliveries_endpoint_state.last_error",
}  # fmt: skip


def breaches() -> list[str]:
    stretches = audit.walk(WALKS, batch=100, patience_ms=60_000)
    return [breach.kind for stretch in stretches for breach in stretch.breaches]


def expunge(by: Caller, event_id: str) -> dict[str, Any]:
    answer = by.post(f"/v1/events/{event_id}/expunge", REASON)
    assert answer.status_code == 200, answer.content
    shown: dict[str, Any] = answer.json()
    return shown


def test_after_it_no_column_of_any_table_holds_anything_of_the_content(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    assert isinstance(settle(delivery), Applied)
    say(delivery)
    last_error(delivery.endpoint.pk, f"broke at {MARKER}")
    assert places() == CONTENT, "otherwise it proves little that they are gone"
    expunge(mine, event_id)
    assert places() == set()


def test_what_an_older_release_kept_with_a_refused_write_goes_too(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    let_lease_expire(delivery.claim)
    assert isinstance(settle(delivery), Rejected)
    refused = FencedWrite.objects.get(operation_key=delivery.key)
    kept = refused.evidence
    ledger_rows.change(
        "ledger_fenced_write", {"fenced_write_id": refused.fenced_write_id},
        evidence={**(kept or {}), "response_headers": {"x": MARKER}, "error": MARKER},
    )  # fmt: skip
    assert "ledger_fenced_write.evidence" in places()
    expunge(mine, event_id)
    assert places() == set()
    assert FencedWrite.objects.get(operation_key=delivery.key).evidence == kept


def test_what_is_known_about_the_sends_is_kept(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    settle(delivery)
    say(delivery)
    kept = ("event_id", "tenant_id", "type", "digest", "deliver_at", "idempotency_key", "deliveries", "created_at")
    before = Event.objects.values(*kept).get(), Operation.objects.values().get()
    attempt, word = Attempt.objects.values().get(), Acknowledgement.objects.values().get()
    expunge(mine, event_id)
    assert (Event.objects.values(*kept).get(), Operation.objects.values().get()) == before
    gone = {"response_headers": None, "response_body": None, "error": ""}
    assert Attempt.objects.values().get() == {**attempt, **gone}
    assert Acknowledgement.objects.values().get() == {**word, "detail": ""}
    assert breaches() == []


def test_it_answers_the_event_without_its_content_and_a_second_time_the_same(mine: Caller) -> None:
    event_id = submit(mine)
    first = expunge(mine, event_id)
    assert first["expunged_at"] is not None
    assert [first[name] for name in ("data", "metadata", "headers", "source")] == [None] * 4
    before = rows.row_counts()
    assert expunge(mine, event_id) == first
    assert mine.get(f"/v1/events/{event_id}").json() == first
    assert rows.row_counts() == before
    assert expunging.is_expunged([key_of(event_id)]) == {key_of(event_id)}


def test_who_asked_for_it_and_why_is_a_job_that_is_done(mine: Caller) -> None:
    event_id = submit(mine)
    expunge(mine, event_id)
    (job,) = mine.get("/v1/jobs?kind=expunge").json()["items"]
    assert (job["status"], job["changed"], job["parameters"]) == ("done", 1, {"event_id": event_id})
    assert job["reason"] == REASON["reason"]
    assert job["actor"].startswith("a test (key_")


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "a\0b"}, {**REASON, "x": 1}])
def test_without_a_reason_nothing_is_removed(mine: Caller, body: dict[str, object]) -> None:
    event_id = submit(mine)
    before = rows.row_counts()
    refused = mine.post(f"/v1/events/{event_id}/expunge", body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == ("x" if "x" in body else "reason")
    assert rows.row_counts() == before
    assert places() > set()


def test_anothers_event_is_not_there_and_it_takes_the_scope(mine: Caller, theirs: Caller) -> None:
    event_id = submit(mine)
    assert theirs.post(f"/v1/events/{event_id}/expunge", REASON).status_code == 404
    assert rows.caller("operate", "read").post(f"/v1/events/{event_id}/expunge", REASON).status_code == 403
    assert not Event.objects.exclude(expunged_at=None).exists()
    assert not Job.objects.exists()


def test_what_waits_is_cancelled_and_nothing_of_it_is_sent(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    expunge(mine, event_id)
    (delivery,) = rows.deliveries_of(mine, event_id)
    assert delivery["status"] == "cancelled"
    assert claiming.claim(Walk(), owner="x/1/a", batch=10, ttl_ms=1_000)[0] == []
    assert breaches() == []


def test_what_stands_in_a_line_holds_nobody_up(mine: Caller) -> None:
    rows.endpoint(mine, order={"ordered": True})
    first, second = submit(mine), rows.event(mine)
    assert isinstance(settle(claim(), None), Applied)
    expunge(mine, first)
    assert claim().content.event_id == key_of(second)
    assert breaches() == []


@pytest.mark.parametrize("status", [None, 200])
def test_what_is_unknown_or_on_the_wire_keeps_its_truth_and_is_not_sent_again(mine: Caller, status: int | None) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    expunge(mine, event_id)
    assert isinstance(settle(delivery, status), Applied)
    operation = Operation.objects.get(operation_key=delivery.key)
    assert operation.status == ("unknown" if status is None else "succeeded")
    assert operation.due_at is None
    attempt = Attempt.objects.get(operation_key=delivery.key)
    assert (attempt.http_status, attempt.ended_at is None) == (status, False)
    assert places() == set(), "the answer came after the content was removed"
    assert breaches() == []


def test_what_a_fenced_out_worker_reports_late_brings_no_answer_back(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    let_lease_expire(delivery.claim)
    expunge(mine, event_id)
    assert isinstance(settle(delivery), Rejected)
    attempt = Attempt.objects.get(operation_key=delivery.key)
    assert (attempt.late, attempt.classification) == (True, "accepted")
    assert FencedWrite.objects.filter(operation_key=delivery.key).exists()
    assert places() == set()


def test_a_receivers_later_words_are_not_kept_and_what_it_says_is(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    delivery = claim()
    settle(delivery, None)
    expunge(mine, event_id)
    assert say(delivery, Said.PROCESSED)
    assert (Acknowledgement.objects.get().said, Acknowledgement.objects.get().detail) == ("processed", "")
    assert places() == set()


def test_it_is_neither_replayed_nor_recovered(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    settle(claim(), 410)
    expunge(mine, event_id)
    (delivery,) = rows.deliveries_of(mine, event_id)
    before = rows.row_counts()
    for path in (f"/v1/events/{event_id}/replay", f"/v1/deliveries/{delivery['id']}/replay"):
        refused = mine.post(path, {} if "events" in path else None)
        assert (refused.status_code, refused.json()["code"]) == (409, "expunged"), refused.content
    assert rows.row_counts() == before


def test_a_producer_that_asks_again_with_the_same_key_gets_the_same_answer(mine: Caller) -> None:
    body = {"type": "invoice.paid", "data": {"who": MARKER}, "metadata": {"a": MARKER}}
    first = mine.post("/v1/events", body, Idempotency_Key="the-key")
    expunge(mine, first.json()["id"])
    again = mine.post("/v1/events", body, Idempotency_Key="the-key")
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert mine.post("/v1/events", {**body, "data": 2}, Idempotency_Key="the-key").status_code == 409
    assert places() == set()


def test_the_admin_and_explain_say_that_it_was_removed(mine: Caller) -> None:
    rows.endpoint(mine)
    event_id = submit(mine)
    settle(claim())
    (delivery,) = rows.deliveries_of(mine, event_id)
    expunge(mine, event_id)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(f"/admin/deliveries/event/{key_of(event_id)}/change/", follow=True)
    assert page.status_code == 200
    assert "was removed on request" in page.content.decode()
    told = StringIO()
    call_command("explain", delivery["id"], stdout=told)
    assert "the content of its event, and what was answered, was removed on request" in told.getvalue()


def test_a_dispatcher_that_has_claimed_what_was_expunged_meanwhile_gives_it_back_unsent(mine: Caller) -> None:
    """By force: `task.close` lets no run be opened, and a cancelled one is not claimed."""
    rows.endpoint(mine)
    event_id = submit(mine)
    ledger_rows.change(
        "deliveries_event", {"event_id": key_of(event_id)}, payload=b"", metadata=None, headers=None, source=None,
        expunged_at=ledger_rows.from_now(0),
    )  # fmt: skip
    claimed, _ = claiming.claim(Walk(), owner=OWNER, batch=10, ttl_ms=TTL_MS)
    assert claimed == []
    operation = Operation.objects.get()
    assert (operation.status, operation.attempts, operation.dispatch_owner) == ("cancelled", 0, None)
    assert breaches() == []


def test_the_report_of_the_tests_would_be_kept_of_an_event_that_is_not_expunged(mine: Caller) -> None:
    rows.endpoint(mine)
    submit(mine)
    delivery = claim()
    report = answered(delivery)
    settling.settle([report], owner=OWNER)
    attempt = Attempt.objects.get()
    assert report.outcome is not None
    assert (bytes(attempt.response_body or b""), attempt.error) == (report.outcome.body, report.outcome.error)
