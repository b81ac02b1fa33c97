"""Every page opens, with rows and without, at a bounded cost; and none of them writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from deliveries import ids
from deliveries.models import Endpoint
from ledger.models import Operation, Task
from tests.admin import rows
from tests.support.database import unguarded

MOST_QUERIES = 15
LISTS = (
    "deliveries/event", "deliveries/endpoint", "deliveries/tenant", "deliveries/apikey", "ledger/task",
    "ledger/operation", "ledger/dispatch", "ledger/lease", "ledger/takeover", "ledger/fencedwrite", "ledger/resolution",
    "auth/user", "auth/group",
)  # fmt: skip
TASK_STATUSES = ("person", "unknown", "quarantined", "sending", "waiting", "delivered", "failed", "cancelled")
OPERATION_STATUSES = ("unsettled", "prepared", "flight", "unknown", "succeeded", "failed_final")
FILTERED = (
    *(f"ledger/task/?status={s}" for s in TASK_STATUSES),
    *(f"ledger/task/?made={m}" for m in ("1h", "1d", "7d", "-1d", "-7d", "-30d")),
    *(f"ledger/operation/?status={s}" for s in OPERATION_STATUSES),
    *(f"ledger/dispatch/?moves={m}" for m in ("quarantined", "itself", "all")),
    *(f"deliveries/endpoint/?state={s}" for s in ("enabled", "disabled", "paused", "failing", "deleted")),
    "ledger/task/?tenant=default", "ledger/task/?endpoint=ep_nonsense", "ledger/fencedwrite/?why=lease_lost",
    "ledger/resolution/?decision=retry", "deliveries/event/?made=1h",
)  # fmt: skip
STATUSES = tuple(rows.RUN_OF)


def text_of(client: Client, path: str, status: int = 200) -> str:
    response = client.get(f"/admin/{path}")
    assert response.status_code == status, (path, response.status_code)
    return response.content.decode()


def plant_everything(each: int = 2) -> rows.Planted:
    """Deliveries in every status with evidence of every kind; answers one that is unknown."""
    endpoint_id = rows.endpoint(idempotent=False)
    unknown = rows.delivery("unknown", endpoint_id=endpoint_id)
    for status in STATUSES:
        for _ in range(each):
            planted = rows.delivery(status, endpoint_id=endpoint_id)
            rows.attempt(planted)
    rows.attempt(unknown, 1)
    rows.attempt(unknown, 2, ended_at=None, error="", evidence=None)
    for epoch in range(2, 2 + each):
        rows.takeover(unknown, epoch)
        rows.fenced_write(unknown)
        rows.acknowledgement(unknown)
        rows.resolution(unknown)
        rows.api_key()
    return unknown


def detail_paths(planted: rows.Planted) -> list[str]:
    takeover, fenced, resolution = rows.takeover(planted, 99), rows.fenced_write(planted), rows.resolution(planted)
    return [
        f"deliveries/event/{planted.event_id}/change/",
        f"deliveries/endpoint/{planted.endpoint_id}/change/",
        f"deliveries/endpoint/{planted.endpoint_id}/edit/",
        f"deliveries/endpoint/{planted.endpoint_id}/remove/",
        "deliveries/tenant/default/change/",
        f"deliveries/apikey/{rows.api_key(tenant_id='default')}/change/",
        f"deliveries/apikey/{rows.api_key()}/revoke/",
        f"ledger/task/{planted.task_id}/change/",
        f"ledger/operation/{planted.operation_key}/change/",
        f"ledger/operation/{planted.operation_key}/resolve/",
        f"ledger/lease/{planted.run_id}/change/",
        f"ledger/takeover/{takeover}/change/",
        f"ledger/fencedwrite/{fenced}/change/",
        f"ledger/resolution/{resolution}/change/",
    ]


@pytest.mark.parametrize("path", ["", *(f"{one}/" for one in LISTS), *FILTERED])
def test_every_list_opens_while_there_are_no_rows(administrator: Client, path: str) -> None:
    assert "<h1" in text_of(administrator, path)


def test_an_empty_list_says_what_to_do(administrator: Client) -> None:
    assert "Nothing waits for a person" in text_of(administrator, "ledger/dispatch/")
    assert "POST /v1/events" in text_of(administrator, "deliveries/event/")


@pytest.mark.parametrize("path", ["", *(f"{one}/" for one in LISTS), *FILTERED])
def test_every_list_opens_with_rows_and_costs_no_query_for_a_row(administrator: Client, path: str) -> None:
    plant_everything(each=1)
    with CaptureQueriesContext(
        connection,
    ) as few:
        text_of(administrator, path)
    plant_everything(each=4)
    with CaptureQueriesContext(connection) as many:
        text_of(administrator, path)
    assert len(many) <= MOST_QUERIES
    # A branch may be skipped while there is nothing to show; what more rows may not do is cost a query each.
    assert len(many) <= len(few) + 3


def test_every_detail_page_opens_at_a_bounded_cost(administrator: Client) -> None:
    for path in detail_paths(plant_everything(each=3)):
        with CaptureQueriesContext(connection) as spent:
            text_of(administrator, path)
        assert len(spent) <= MOST_QUERIES, path


def test_no_page_counts_a_table(administrator: Client) -> None:
    plant_everything()
    for path in ("", *(f"{one}/" for one in LISTS if not one.startswith("auth"))):
        with CaptureQueriesContext(connection) as spent:
            text_of(administrator, path)
        for query in spent:
            assert "COUNT(" not in query["sql"] or "LIMIT" in query["sql"], query["sql"]


def test_a_detail_page_of_nothing_leads_back(administrator: Client) -> None:
    for path in (
        f"ledger/task/{ids.time_ordered()}/change/",
        "ledger/task/nonsense/change/",
        "ledger/operation/999999/change/",
    ):
        assert administrator.get(f"/admin/{path}").status_code == 302


def test_leases_are_shown_only_while_they_are_held(administrator: Client) -> None:
    held, free = rows.delivery("sending"), rows.delivery("delivered")
    late = rows.delivery("sending", overdue=True)
    page = text_of(administrator, "ledger/lease/")
    assert str(held.run_id) in page
    assert str(late.run_id) in page
    assert "Overdue by" in page
    assert str(free.run_id) not in page
    assert str(free.run_id) in text_of(administrator, f"ledger/lease/?q={free.run_id}")


def test_the_queue_shows_first_what_needs_a_person_and_the_oldest_first(administrator: Client) -> None:
    older, newer = rows.delivery("unknown"), rows.delivery("unknown")
    itself = rows.delivery("unknown", needs_person=False)
    shown = administrator.get("/admin/ledger/dispatch/").context["cl"].result_list
    assert [row.operation_id for row in shown] == [older.operation_key, newer.operation_key]
    repeated = administrator.get("/admin/ledger/dispatch/?moves=itself").context["cl"].result_list
    assert [row.operation_id for row in repeated] == [itself.operation_key]


def test_a_delivery_tells_its_life_in_order_of_time(administrator: Client) -> None:
    planted = rows.delivery("unknown")
    start = rows.now() - timedelta(hours=1)
    rows.attempt(planted, 1, started_at=start, error="first-attempt")
    rows.takeover(planted, taken_at=start + timedelta(minutes=1))
    rows.fenced_write(planted, refused_at=start + timedelta(minutes=2), statement="second.statement")
    rows.attempt(planted, 2, started_at=start + timedelta(minutes=3), error="third-attempt")
    rows.resolution(planted, reason="fourth-reason", decided_at=start + timedelta(minutes=4))
    page = text_of(administrator, f"ledger/task/{planted.task_id}/change/").split("What happened")[1]
    told = [
        page.index(part)
        for part in ("first-attempt", "Taken over", "second.statement", "third-attempt", "fourth-reason")
    ]
    assert told == sorted(told)


@pytest.mark.parametrize("verb", ["add", "delete", "change"])
@pytest.mark.parametrize(
    "model", ["event", "task", "operation", "dispatch", "lease", "takeover", "fencedwrite", "resolution"]
)
def test_what_the_protocol_writes_cannot_be_written_here(administrator: Client, model: str, verb: str) -> None:
    planted = rows.delivery("unknown")
    app = "deliveries" if model == "event" else "ledger"
    key = {
        "event": planted.event_id, "task": planted.task_id, "lease": planted.run_id, "takeover": rows.takeover(planted),
        "fencedwrite": rows.fenced_write(planted), "resolution": rows.resolution(planted),
    }.get(model, planted.operation_key)  # fmt: skip
    before = (Operation.objects.get(pk=planted.operation_key).revision, Task.objects.count())
    path = f"/admin/{app}/{model}/add/" if verb == "add" else f"/admin/{app}/{model}/{key}/{verb}/"
    assert administrator.post(path, {"post": "yes"}).status_code in {302, 403} if model == "dispatch" else 403
    if model != "dispatch":
        assert administrator.post(path, {"post": "yes"}).status_code == 403
    assert before == (Operation.objects.get(pk=planted.operation_key).revision, Task.objects.count())


def test_somebody_who_is_not_signed_in_sees_nothing(db: None) -> None:
    planted = rows.delivery("unknown")
    for path in (
        "",
        "ledger/task/",
        f"ledger/task/{planted.task_id}/change/",
        f"ledger/operation/{planted.operation_key}/resolve/",
    ):
        response = Client().get(f"/admin/{path}")
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")


def test_a_person_sees_only_what_they_may(person: Callable[..., Client]) -> None:
    planted = rows.delivery("unknown")
    viewer = person("ledger.view_task")
    text_of(viewer, "ledger/task/")
    text_of(viewer, f"ledger/task/{planted.task_id}/change/")
    for path in (
        "ledger/operation/",
        f"ledger/operation/{planted.operation_key}/change/",
        "deliveries/endpoint/",
        "auth/user/",
    ):
        assert viewer.get(f"/admin/{path}").status_code == 403, path


def test_people_are_kept_in_the_same_admin(administrator: Client) -> None:
    user = User.objects.get(username="root")
    assert "root" in text_of(administrator, f"auth/user/{user.pk}/change/")


def test_a_secret_is_on_no_page(administrator: Client) -> None:
    planted = plant_everything()
    assert Endpoint.objects.get(pk=planted.endpoint_id).secret_sealed == "sealed-secret-text"
    for path in ("deliveries/endpoint/", *detail_paths(planted)):
        assert "sealed-secret-text" not in text_of(administrator, path)


def test_a_run_is_told_before_its_operation_though_the_clock_was_read_in_the_other_order(administrator: Client) -> None:
    planted = rows.delivery("pending")
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_operation SET created_at = created_at - interval '50 microseconds' WHERE operation_key = %s",
            [planted.operation_key],
        )
    text = text_of(administrator, f"ledger/task/{planted.task_id}/change/")
    assert text.index("Submitted as run") < text.index("Operation planned")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "It gets events that are accepted from now on"),
        ({"enabled": False}, "It is disabled: events that are accepted now do not go to it"),
        ({"enabled": False, "deleted_at": rows.now}, "It is deleted: no event goes to it any more"),
    ],
    ids=["enabled", "disabled", "deleted"],
)
def test_an_endpoint_without_deliveries_says_what_to_expect(
    columns: dict[str, Any], words: str, administrator: Client
) -> None:
    given = {name: value() if callable(value) else value for name, value in columns.items()}
    assert words in text_of(administrator, f"deliveries/endpoint/{rows.endpoint(**given)}/change/")


def test_a_fenced_write_names_its_operation_with_its_tenant(administrator: Client) -> None:
    planted = rows.delivery("unknown")
    text = text_of(administrator, f"ledger/fencedwrite/{rows.fenced_write(planted)}/change/")
    assert f"default/{planted.run_id}/deliver/1" in text


def test_the_admin_is_found_without_its_last_slash(client: Client) -> None:
    assert client.get("/admin").headers["Location"] == "/admin/"


def test_a_quarantined_delivery_is_named_as_such_wherever_it_is_shown(administrator: Client) -> None:
    poison, other = rows.delivery("unknown", attempts=3, losses=3), rows.delivery("unknown", attempts=2, losses=2)
    sentence = "Its last 3 sends each lost their worker. It is not sent again by itself. Resolve it, or send it again"
    for path in (
        f"ledger/operation/{poison.operation_key}/change/",
        f"ledger/operation/{poison.operation_key}/resolve/",
        f"ledger/task/{poison.task_id}/change/",
        "ledger/dispatch/?moves=quarantined",
        "ledger/dispatch/",
    ):
        assert sentence in text_of(administrator, path), path
    for path in ("ledger/dispatch/?moves=quarantined", "ledger/task/?status=quarantined"):
        page = text_of(administrator, path)
        shown = {poison.run_id.hex, str(poison.run_id), poison.task_id.hex}
        hidden = {other.run_id.hex, str(other.run_id), other.task_id.hex}
        assert any(one in page for one in shown), path
        assert not any(one in page for one in hidden), path
    assert "Quarantined</span>" in text_of(administrator, "ledger/task/?status=quarantined")
    assert "Quarantined</span>" not in text_of(administrator, f"ledger/task/{other.task_id}/change/")


def test_what_the_receiver_said_stands_next_to_the_attempts(administrator: Client) -> None:
    planted = rows.delivery("unknown")
    rows.acknowledgement(planted, source="acknowledgement", said="processed", remote_id="in_<1042>", covers=0)
    for path in (f"ledger/operation/{planted.operation_key}/change/", f"ledger/task/{planted.task_id}/change/"):
        page = text_of(administrator, path)
        assert "The receiver said: Processed" in page
        assert "in_&lt;1042&gt;" in page
        assert "it moves nothing" in page
    assert "What the receiver said" in text_of(administrator, f"ledger/operation/{planted.operation_key}/change/")
