"""A person settles an unknown operation: seen, decided, confirmed, done; or refused, with what is there now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger.managers import unknown as unknown_operations
from ledger.models import Operation, Resolution, Run
from ledger.outcome import Applied
from ledger.states import Decision
from tests.admin import rows

REASON = "Their log of 12:03 shows the event."


def path(planted: rows.Planted) -> str:
    return f"/admin/ledger/operation/{planted.operation_key}/resolve/"


def answer(planted: rows.Planted, decision: str, **more: Any) -> dict[str, Any]:
    revision = Operation.objects.get(pk=planted.operation_key).revision
    return {"decision": decision, "reason": REASON, "revision": revision, **more}


@pytest.fixture
def unknown(db: None) -> rows.Planted:
    planted = rows.delivery("unknown", endpoint_id=rows.endpoint(idempotent=False))
    rows.attempt(planted)
    return planted


def test_the_page_shows_the_evidence_and_what_each_decision_leads_to(
    administrator: Client, unknown: rows.Planted
) -> None:
    page = administrator.get(path(unknown)).content.decode()
    assert "The connection was reset after the request was sent." in page
    assert "It promises nothing" in page
    assert "request_complete" in page
    for words in ("ends as delivered", "ends as failed", "may act twice"):
        assert words in page


def test_a_decision_is_asked_for_once_more_before_anything_changes(
    administrator: Client, unknown: rows.Planted
) -> None:
    response = administrator.post(path(unknown), answer(unknown, "succeeded"))
    assert response.status_code == 200
    assert b"are you sure" in response.content
    assert Operation.objects.get(pk=unknown.operation_key).status == "unknown"
    assert not Resolution.objects.exists()


@pytest.mark.parametrize(
    ("decision", "operation_status", "run_status"),
    [("succeeded", "succeeded", "succeeded"), ("failed", "failed_final", "failed"), ("retry", "unknown", "running")],
)
def test_a_confirmed_decision_is_carried_out_and_recorded(
    administrator: Client, unknown: rows.Planted, decision: str, operation_status: str, run_status: str
) -> None:
    response = administrator.post(path(unknown), answer(unknown, decision, confirmed="yes"))
    assert response.status_code == 302
    row = Operation.objects.get(pk=unknown.operation_key)
    assert row.status == operation_status
    assert Run.objects.get(pk=unknown.run_id).status == run_status
    assert (row.due_at is not None) == (decision == "retry")
    kept = Resolution.objects.get(operation_id=unknown.operation_key)
    assert (kept.actor, kept.decision, kept.reason) == ("user:root", decision, REASON)


def test_who_comes_second_is_refused_and_told_who_was_first_and_why(
    administrator: Client, unknown: rows.Planted
) -> None:
    late = answer(unknown, "failed", confirmed="yes")
    first = unknown_operations.resolve(
        operation_key=unknown.operation_key,
        actor="user:mia",
        decision=Decision.SUCCEEDED,
        reason="Seen in the ERP.",
        revision=late["revision"],
    )
    assert isinstance(first, Applied)
    response = administrator.post(path(unknown), late)
    page = response.content.decode()
    assert response.status_code == 409
    for words in (
        "your decision changed nothing",
        "user:mia",
        "Seen in the ERP.",
        "It was delivered",
        f"revision {first.row.revision}",
    ):
        assert words in page
    assert Resolution.objects.count() == 1
    assert Operation.objects.get(pk=unknown.operation_key).status == "succeeded"


def test_a_decision_about_an_older_revision_is_refused_and_may_be_made_again(
    administrator: Client, unknown: rows.Planted
) -> None:
    old = answer(unknown, "succeeded", confirmed="yes")
    unknown_operations.resolve(
        operation_key=unknown.operation_key,
        actor="user:mia",
        decision=Decision.RETRY,
        reason="Try.",
        revision=old["revision"],
    )
    refused = administrator.post(path(unknown), old)
    assert refused.status_code == 409
    assert Operation.objects.get(pk=unknown.operation_key).status == "unknown"
    again = {**old, "revision": refused.context["form"].initial["revision"]}
    assert administrator.post(path(unknown), again).status_code == 302
    assert Operation.objects.get(pk=unknown.operation_key).status == "succeeded"


@pytest.mark.parametrize(
    "broken", [{"reason": ""}, {"reason": "   "}, {"decision": "maybe"}, {"revision": "x"}, {"reason": "a\0b"}]
)
def test_a_decision_that_is_not_whole_changes_nothing(
    administrator: Client, unknown: rows.Planted, broken: dict[str, str]
) -> None:
    response = administrator.post(path(unknown), {**answer(unknown, "failed", confirmed="yes"), **broken})
    assert response.status_code == 422
    assert Operation.objects.get(pk=unknown.operation_key).status == "unknown"
    assert not Resolution.objects.exists()


def test_without_the_right_there_is_neither_button_nor_page(
    person: Callable[..., Client], unknown: rows.Planted
) -> None:
    viewer = person("ledger.view_dispatch", "ledger.view_operation", "ledger.view_task", "ledger.change_operation")
    for page in (
        "/admin/ledger/dispatch/",
        f"/admin/ledger/operation/{unknown.operation_key}/change/",
        f"/admin/ledger/task/{unknown.task_id}/change/",
    ):
        assert path(unknown) not in viewer.get(page).content.decode()
    assert viewer.get(path(unknown)).status_code == 403
    assert viewer.post(path(unknown), answer(unknown, "failed", confirmed="yes")).status_code == 403
    assert Operation.objects.get(pk=unknown.operation_key).status == "unknown"


def test_an_operator_has_the_button_on_every_page_of_it(person: Callable[..., Client], unknown: rows.Planted) -> None:
    operator = person("ledger.view_dispatch", "ledger.view_operation", "ledger.view_task", "ledger.resolve_operation")
    for page in (
        "/admin/ledger/dispatch/",
        f"/admin/ledger/operation/{unknown.operation_key}/change/",
        f"/admin/ledger/task/{unknown.task_id}/change/",
    ):
        assert path(unknown) in operator.get(page).content.decode()
    assert operator.get(path(unknown)).status_code == 200


def test_a_forged_request_from_another_site_is_refused(administrator: Client, unknown: rows.Planted) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="root"))
    assert strict.post(path(unknown), answer(unknown, "failed", confirmed="yes")).status_code == 403
    assert Operation.objects.get(pk=unknown.operation_key).status == "unknown"


def test_a_settled_operation_has_nothing_to_resolve(administrator: Client) -> None:
    planted = rows.delivery("delivered")
    page = administrator.get(path(planted)).content.decode()
    assert "There is nothing to resolve" in page
    assert 'name="decision"' not in page


def test_an_operation_that_does_not_exist_is_not_found(administrator: Client) -> None:
    assert administrator.get("/admin/ledger/operation/999999999/resolve/").status_code == 404
