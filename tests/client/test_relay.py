"""The client's methods against a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relay.client import Conflict, Forbidden, Invalid, NewEvent, NotFound, Relay, Unauthorized
from relay.client.results import Delivery
from tests.api import rows
from tests.api.rows import Caller
from tests.support.web import Web

URL = rows.URL
LONG = timedelta(hours=1)


def test_an_event_is_sent_and_found_again(relay: Relay) -> None:
    relay.endpoints.create(URL)
    later = datetime(2030, 1, 31, 9, 30, tzinfo=UTC)
    payload = b'{"amount": 1.10, "name": "caf\\u00e9"}'
    sent = relay.send(
        "invoice.paid", payload, id="in_1-paid", source="billing", metadata={"a": "b"}, headers={"X-A": "b"},
        deliver_at=later,
    )  # fmt: skip
    assert (sent.id, sent.deliveries, sent.replayed) == ("in_1-paid", 1, False)
    event = relay.event("in_1-paid")
    assert event.payload == payload
    assert event.data == {"amount": 1.1, "name": "caf\u00e9"}
    assert (event.source, event.metadata, event.headers, event.deliver_at) == (
        "billing",
        {"a": "b"},
        {"X-A": "b"},
        later,
    )
    assert [one.id for one in relay.events(type="invoice.paid", since=datetime.now(UTC) - LONG)] == ["in_1-paid"]
    assert list(relay.events(until=datetime.now(UTC) - LONG)) == []
    (delivery,) = relay.event_deliveries("in_1-paid")
    assert (delivery.status, delivery.event_id, delivery.due_at) == ("pending", "in_1-paid", later)
    assert list(relay.event_attempts("in_1-paid")) == []


def test_the_same_id_or_key_stores_nothing_new_and_other_content_is_a_conflict(relay: Relay) -> None:
    first = relay.send("a", {"n": 1}, idempotency_key="k")
    again = relay.send("a", {"n": 1}, idempotency_key="k")
    assert (again.id, again.replayed) == (first.id, True)
    with pytest.raises(Conflict) as refused:
        relay.send("a", {"n": 2}, idempotency_key="k")
    assert refused.value.code == "idempotency_conflict"
    relay.send("a", {"n": 1}, id="mine")
    assert relay.send("a", {"n": 1}, id="mine").replayed
    assert len(list(relay.events())) == 2
    assert relay.send("a", {"n": 1}).id != relay.send("a", {"n": 1}).id


def test_a_batch_of_any_length_is_answered_in_order_and_no_good_one_is_lost(relay: Relay) -> None:
    def events() -> object:
        for number in range(2_300):
            if number == 1_700:
                yield {"type": "not a type", "data": number}
            elif number == 1_701:
                yield NewEvent(type="a", data=b'{"n":\n1}', id="with-a-line-feed")
            else:
                yield {"type": "a", "data": number, "id": f"e-{number}"}

    results = relay.send_batch(events())  # type: ignore[arg-type]
    assert [one.index for one in results] == list(range(2_300))
    refused = [one for one in results if one.error is not None]
    assert [(one.index, one.status) for one in refused] == [(1_700, 422)]
    assert refused[0].error is not None
    assert [one.field for one in refused[0].error.errors] == ["type"]
    assert [one.id for one in results[:3]] == ["e-0", "e-1", "e-2"]
    assert results[2_299].id == "e-2299"
    assert relay.event("with-a-line-feed").payload == b'{"n":\n1}'
    assert sum(1 for _ in relay.events()) == 2_299
    assert all(one.replayed for one in relay.send_each({"type": "a", "data": n, "id": f"e-{n}"} for n in range(3)))


def test_lists_are_walked_through_all_pages_and_no_further_than_asked(relay: Relay) -> None:
    relay.endpoints.create(URL)
    relay.send_batch({"type": "a", "data": n} for n in range(450))
    found = [one.id for one in relay.deliveries()]
    assert len(set(found)) == len(found) == 450
    assert [one.id for one in relay.deliveries(limit=203)] == found[:203]
    assert list(relay.deliveries(limit=0)) == []
    (endpoint,) = relay.endpoints.list()
    assert sum(1 for _ in relay.deliveries(endpoint_id=endpoint.id, limit=5)) == 5
    assert sum(1 for _ in relay.deliveries(status="pending")) == 450
    assert list(relay.deliveries(status="failed")) == []


def test_an_unknown_operation_is_found_and_resolved_once(relay: Relay, caller: Caller) -> None:
    operation_id = rows.unknown(caller)
    (found,) = relay.operations(status="unknown")
    assert (found.id, found.ambiguous) == (operation_id, True)
    operation = relay.operation(operation_id)
    assert [one.number for one in operation.attempt_records] == [1]
    with pytest.raises(Conflict) as stale:
        relay.resolve(operation_id, "failed", "x", revision=operation.revision - 1)
    assert stale.value.current["revision"] == operation.revision
    with pytest.raises(Invalid) as cannot:
        relay.query(operation_id)
    assert [one.field for one in cannot.value.errors] == ["capability.query_url"]
    resolved = relay.resolve(operation_id, "succeeded", "Seen.", revision=operation.revision)
    assert resolved.status == "succeeded"
    assert [one.reason for one in resolved.resolutions] == ["Seen."]
    with pytest.raises(Conflict):
        relay.resolve(operation_id, "failed", "No.")
    delivery = relay.delivery(operation.delivery_id)
    assert delivery.status == "delivered"
    assert [one.number for one in delivery.attempt_records] == [1]


def test_a_delivery_is_cancelled_and_replayed(relay: Relay) -> None:
    relay.endpoints.create(URL)
    sent = relay.send("a", 1)
    (delivery,) = relay.event_deliveries(sent.id)
    cancelled = relay.cancel(delivery.id)
    assert cancelled.status == "cancelled"
    assert cancelled.detail.startswith("Cancelled")
    with pytest.raises(Conflict) as over:
        relay.cancel(delivery.id)
    assert over.value.current["status"] == "cancelled"
    replayed = relay.replay(delivery.id)
    assert isinstance(replayed, Delivery)
    assert (replayed.status, len(replayed.runs)) == ("pending", 2)
    (answer,) = relay.replay_event(sent.id)
    assert (answer.delivery_id, answer.replayed, answer.reason) == (delivery.id, False, "goes_on")
    relay.cancel(delivery.id)
    again = relay.replay(sent.id)
    assert isinstance(again, list)
    assert [one.replayed for one in again] == [True]


def test_an_endpoint_is_made_read_changed_and_deleted(relay: Relay) -> None:
    made = relay.endpoints.create(URL, types=["invoice.*"], retry={"schedule": [5]}, rate_limit={"per_second": 10})
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    assert made.secret not in repr(made)
    assert made.retry is not None
    assert made.retry.schedule == [5]
    read = relay.endpoints.get(made.id)
    assert (read.secret, read.types) == (None, ["invoice.*"])
    changed = relay.endpoints.update(made.id, description="Billing")
    assert (changed.description, changed.types) == ("Billing", ["invoice.*"])
    rotated = relay.endpoints.rotate_secret(made.id, overlap_hours=0)
    assert rotated.secret != made.secret
    assert rotated.secret not in repr(rotated)
    assert [one.id for one in relay.endpoints.list()] == [made.id]
    with pytest.raises(Invalid) as wrong:
        relay.endpoints.update(made.id, url="ftp://x", types=["a b"])
    assert {one.field for one in wrong.value.errors} >= {"url"}
    relay.endpoints.delete(made.id)
    with pytest.raises(NotFound):
        relay.endpoints.get(made.id)


def test_a_pair_of_keys_is_shown_with_its_public_half(relay: Relay) -> None:
    made = relay.endpoints.create(URL, signature="v1a")
    assert made.public_key is not None
    assert made.public_key.startswith("whpk_")


def test_what_is_not_there_and_what_may_not_be_done(relay: Relay, web: Web) -> None:
    for absent in ("evt_" + "0" * 32, "a/b", "..", "?x=1"):
        with pytest.raises(NotFound):
            relay.event(absent)
    with pytest.raises(NotFound):
        relay.operation("default/../x")
    with Relay(url=web.url, key="rk_nobody-has-this-key") as nobody, pytest.raises(Unauthorized) as refused:
        nobody.event("evt_1")
    assert refused.value.code == "key_unknown"


def test_a_key_of_one_tenant_cannot_name_another(web: Web, key: str) -> None:
    with Relay(url=web.url, key=key, tenant="default") as relay, pytest.raises(Forbidden):
        relay.event("evt_1")


def test_recovery_counts_first(relay: Relay, caller: Caller) -> None:
    endpoint = rows.endpoint(caller)
    job = relay.recover(endpoint, since=datetime.now(UTC) - LONG, dry_run=True)
    assert (job.kind, job.dry_run, job.status) == ("recover", True, "pending")
    assert relay.recover(since=datetime.now(UTC) - LONG, dry_run=True).parameters["endpoint_id"] is None
    assert relay.job(job.id).id == job.id
    assert job.id in [one.id for one in relay.jobs(kind="recover")]
    cancelled = relay.cancel_job(job.id)
    assert cancelled.status == "cancelled"
    assert relay.wait_for(job, timeout=5).status == "cancelled"
    with pytest.raises(Conflict):
        relay.cancel_job(job.id)


def test_waiting_for_a_job_has_an_end(relay: Relay, caller: Caller) -> None:
    job = relay.recover(rows.endpoint(caller), since=datetime.now(UTC) - LONG, dry_run=True)
    with pytest.raises(TimeoutError, match="pending"):
        relay.wait_for(job, timeout=0.1, every=0.05)
