"""`POST /v1/tenants/{id}/expunge`: a job that removes the content of everything that was accepted before a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from deliveries import expunging, jobs
from deliveries.models import Event, Job
from tests.api import rows
from tests.api.rows import Caller
from tests.expunge.lived import claim, places, settle, submit

pytestmark = pytest.mark.django_db

ASKED = {"confirm": "default", "reason": "The customer left."}


def asked(by: Caller, tenant: str = "default", **fields: Any) -> dict[str, Any]:
    answer = by.post(f"/v1/tenants/{tenant}/expunge", {**ASKED, "confirm": tenant, **fields})
    assert answer.status_code == 202, answer.content
    job: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    return job


def work() -> int:
    """How many steps there were to make."""
    steps = 0
    while jobs.due_for_ms() is not None:
        assert jobs._step() is not None
        steps += 1
    return steps


def shown(by: Caller, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = by.get(f"/v1/jobs/{job['id']}").json()
    return found


def test_everything_of_the_tenant_is_removed_whatever_its_state_and_nothing_of_another(
    mine: Caller, theirs: Caller
) -> None:
    submit(theirs, "Theirs-1")
    rows.endpoint(mine)
    submit(mine)
    settle(claim())
    submit(mine)
    settle(claim(), None)
    for _ in range(3):
        submit(mine)
    job = asked(mine)
    work()
    assert places() == set()
    assert places("Theirs-1") > set()
    done = shown(mine, job)
    assert (done["status"], done["walked"], done["matched"], done["changed"], done["skipped"]) == ("done", 5, 5, 5, 0)
    assert (done["kind"], done["reason"]) == ("expunge", ASKED["reason"])
    assert Event.objects.filter(tenant_id="other").exclude(expunged_at=None).count() == 0


@pytest.mark.parametrize(("stretch", "deliveries", "steps"), [(2, 2_000, 3), (200, 2, 3), (200, 1, 5), (5, 2_000, 2)])
def test_it_goes_on_in_bounded_steps_from_where_it_stood(
    mine: Caller, monkeypatch: pytest.MonkeyPatch, stretch: int, deliveries: int, steps: int
) -> None:
    monkeypatch.setattr(expunging, "STRETCH", stretch)
    monkeypatch.setattr(expunging, "DELIVERIES_AT_ONCE", deliveries)
    rows.endpoint(mine)
    for _ in range(5):
        submit(mine)
    job = asked(mine)
    jobs._step()
    halfway = shown(mine, job)
    assert halfway["status"] == "running"
    assert halfway["changed"] == Event.objects.exclude(expunged_at=None).count() <= stretch
    assert 1 + work() == steps
    assert (shown(mine, job)["changed"], places()) == (5, set())


def test_what_was_accepted_later_is_left_alone(mine: Caller) -> None:
    submit(mine)
    before = Event.objects.get().created_at + timedelta(microseconds=1)
    later = submit(mine, "Later-1")
    job = asked(mine, before=before.isoformat())
    work()
    assert (places(), bool(places("Later-1"))) == (set(), True)
    assert shown(mine, job)["walked"] == 1
    assert datetime.fromisoformat(shown(mine, job)["parameters"]["before"]) == before
    assert mine.get(f"/v1/events/{later}").json()["expunged_at"] is None


def test_without_a_time_it_is_everything_from_before_the_job(mine: Caller) -> None:
    submit(mine)
    far = asked(mine, before="2999-01-01T00:00:00Z")
    submit(mine, "Later-1")
    work()
    assert (places(), bool(places("Later-1"))) == (set(), True), "a time to come is now"
    assert far["parameters"]["before"] <= far["created_at"].replace("Z", "+00:00")


def test_a_dry_run_counts_and_a_second_run_finds_nothing_more(mine: Caller) -> None:
    submit(mine)
    dry = asked(mine, dry_run=True)
    work()
    assert (shown(mine, dry)["matched"], shown(mine, dry)["changed"]) == (1, 0)
    assert places() > set()
    for changed in (1, 0):
        job = asked(mine)
        work()
        assert (shown(mine, job)["walked"], shown(mine, job)["changed"]) == (1, changed)


def test_cancelled_it_stops_where_it_is(mine: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expunging, "STRETCH", 1)
    for _ in range(3):
        submit(mine)
    job = asked(mine)
    jobs._step()
    assert mine.post(f"/v1/jobs/{job['id']}/cancel").json()["status"] == "cancelled"
    assert work() == 0
    assert Event.objects.exclude(expunged_at=None).count() == 1


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("confirm", {"confirm": "other"}), ("confirm", {"confirm": "Default"}), ("reason", {"reason": " "}),
        ("before", {"before": "yesterday"}), ("all", {"all": True}),
    ],
)  # fmt: skip
def test_what_cannot_be_undone_is_not_done_by_mistake(mine: Caller, field: str, change: dict[str, Any]) -> None:
    submit(mine)
    refused = mine.post("/v1/tenants/default/expunge", {**ASKED, **change})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    assert not Job.objects.exists()


@pytest.mark.parametrize("missing", ["confirm", "reason"])
def test_it_takes_a_reason_and_the_tenants_id(mine: Caller, missing: str) -> None:
    refused = mine.post("/v1/tenants/default/expunge", {name: ASKED[name] for name in ASKED if name != missing})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, missing)
    assert not Job.objects.exists()


def test_a_tenants_key_knows_no_other_tenant_and_the_operators_knows_all(mine: Caller, theirs: Caller) -> None:
    body = {**ASKED, "confirm": "other"}
    assert mine.post("/v1/tenants/other/expunge", body).status_code == 404
    assert rows.caller("operate", "read").post("/v1/tenants/default/expunge", ASKED).status_code == 403
    operator = rows.caller(tenant=None)
    assert operator.post("/v1/tenants/nobody/expunge", {**ASKED, "confirm": "nobody"}).status_code == 404
    assert not Job.objects.exists()
    submit(theirs, "Theirs-1")
    job = asked(operator, "other")
    work()
    assert places("Theirs-1") == set()
    assert shown(theirs, job)["changed"] == 1
    assert mine.get(f"/v1/jobs/{job['id']}").status_code == 404
