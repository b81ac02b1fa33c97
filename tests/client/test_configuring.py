"""Endpoints' actions and versions, event types, keys, tenants, stats and expunging: client and commands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deliveries import keys
from relay.client import Changed, Conflict, Forbidden, Invalid, NotFound, Relay, Unauthorized
from tests.api import rows
from tests.client.conftest import Type
from tests.receiver import Answer, Receiver
from tests.support.waiting import wait_until
from tests.support.web import Web

URL = rows.URL
SCHEMA = {"type": "object", "required": ["total"]}


@pytest.fixture
def operator_key(db: None) -> str:
    return keys.new_key("an operator", rows.EVERY_SCOPE, None)[1]


@pytest.fixture
def operator(web: Web, operator_key: str) -> Iterator[Relay]:
    """A client with an operator's key."""
    with Relay(url=web.url, key=operator_key) as client:
        yield client


def test_an_endpoint_is_not_overwritten_by_who_saw_an_older_one(relay: Relay) -> None:
    made = relay.endpoints.create(URL)
    assert made.etag is not None
    changed = relay.endpoints.update(made.id, etag=made.etag, description="First")
    assert changed.etag != made.etag
    for act in (
        lambda: relay.endpoints.update(made.id, etag=made.etag, description="Second"),
        lambda: relay.endpoints.disable(made.id, etag=made.etag),
        lambda: relay.endpoints.delete(made.id, etag=made.etag),
    ):
        with pytest.raises(Changed) as refused:
            act()
        assert refused.value.current["description"] == "First"
    now = relay.endpoints.get(made.id)
    assert (now.description, now.enabled, now.etag) == ("First", True, changed.etag)
    relay.endpoints.delete(made.id, etag=now.etag)


def test_an_endpoint_is_tested_disabled_and_enabled(relay: Relay, typed: Type) -> None:
    made = relay.endpoints.create(URL, types=["nothing.of.this"])
    tested = relay.endpoints.test(made.id, data={"hello": "world"})
    assert relay.delivery(tested.delivery_id).endpoint_id == made.id
    assert relay.event(tested.id).data == {"hello": "world"}
    disabled = relay.endpoints.disable(made.id, reason="Rebuilt.")
    assert (disabled.enabled, disabled.disabled_reason) == (False, "Rebuilt.")
    with pytest.raises(Conflict) as refused:
        relay.endpoints.test(made.id)
    assert refused.value.current["enabled"] is False
    assert [one.id for one in relay.endpoints.list(enabled=False)] == [made.id]
    assert list(relay.endpoints.list(enabled=True)) == []
    assert relay.endpoints.enable(made.id).enabled
    assert typed("endpoints", "disable", made.id, "--reason", "x").out == f"{made.id} is disabled.\n"
    assert "It is disabled" in typed("endpoints", "test", made.id).err
    assert typed("endpoints", "enable", made.id).out == f"{made.id} is enabled.\n"
    said = typed("endpoints", "test", made.id, "--type", "a.b", "--data", '{"n": 1}', "--json").document
    assert relay.event(said["id"]).type == "a.b"


def test_an_endpoint_is_enabled_when_its_url_says_the_challenge_back(relay: Relay, typed: Type) -> None:
    with Receiver(lambda received: Answer(200, body=received.body)) as receiver:
        made = relay.endpoints.create(receiver.url, verify=True)
        assert (made.enabled, made.verification and made.verification.required) == (False, True)
        receiver.answers.append(Answer(204))
        with pytest.raises(Conflict) as refused:
            relay.endpoints.verify(made.id)
        assert refused.value.code == "not_verified"
        verified = relay.endpoints.verify(made.id)
        assert verified.enabled
        assert verified.verification is not None
        assert verified.verification.verified_at is not None
        assert "verified" in typed("endpoints", "verify", made.id).out


def test_an_event_type_is_described_kept_and_archived(relay: Relay) -> None:
    made = relay.event_types.create("invoice.paid", description="Paid.", schema=SCHEMA)
    assert (made.schema, made.every_tenant) == (SCHEMA, False)
    with pytest.raises(Conflict):
        relay.event_types.create("invoice.paid")
    with pytest.raises(Invalid) as refused:
        relay.send("invoice.paid", {"n": 1})
    assert refused.value.errors
    relay.send("invoice.paid", {"total": 1})
    changed = relay.event_types.update("invoice.paid", etag=made.etag, deprecated=True)
    assert (changed.deprecated, changed.description) == (True, "Paid.")
    with pytest.raises(Changed):
        relay.event_types.update("invoice.paid", etag=made.etag, description="x")
    assert relay.event_types.archive("invoice.paid").archived_at is not None
    assert list(relay.event_types.list()) == []
    assert [one.name for one in relay.event_types.list(archived="all")] == ["invoice.paid"]
    assert relay.event_types.unarchive("invoice.paid").archived_at is None
    assert relay.event_types.get("invoice.paid").schema == SCHEMA
    with pytest.raises(NotFound):
        relay.event_types.get("nothing")
    with pytest.raises(Forbidden):
        relay.event_types.create("for.all", every_tenant=True)


def test_a_global_type_is_an_operators(operator: Relay, relay: Relay) -> None:
    name = f"global.{datetime.now(UTC):%H%M%S%f}"
    assert operator.event_types.create(name, every_tenant=True).every_tenant
    assert relay.event_types.get(name).every_tenant
    assert operator.event_types.update(name, every_tenant=True, description="All.").description == "All."
    assert operator.event_types.archive(name, every_tenant=True).archived_at is not None


def test_event_types_by_command(typed: Type, tmp_path: Path) -> None:
    assert typed("event-types", "list").out == "There are none.\n"
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    made = typed("event-types", "create", "a.b", "--description", "A.", "--schema", f"@{file}", "--json")
    assert made.status == 0, made.said
    assert made.document["schema"] == {"type": "object"}
    assert typed("event-types", "update", "a.b", "--schema", "null", "--json").document["schema"] is None
    assert "deprecated" in typed("event-types", "update", "a.b", "--deprecated").out
    assert "a.b" in typed("event-types", "show", "a.b").out
    assert "archived" in typed("event-types", "archive", "a.b").out
    assert typed("event-types", "list", "--json").document == []
    assert "archived" in typed("event-types", "list", "--archived").out
    assert typed("event-types", "unarchive", "a.b").status == 0
    assert "a.b" in typed("event-types", "list").out
    nothing = typed("event-types", "update", "a.b")
    assert (nothing.status, nothing.err) == (2, "relay: Say what to change.\n")
    assert typed("event-types", "archive", "nope").status == 1


def test_a_key_is_made_replaced_and_revoked(relay: Relay, web: Web, tenant: str) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    made = relay.keys.create("billing", ["read"], expires_at=ends)
    assert (made.scopes, made.tenant, made.expires_at) == (["read"], tenant, ends)
    assert made.key is not None
    assert made.key not in repr(made)
    with Relay(url=web.url, key=made.key) as theirs:
        assert list(theirs.events()) == []
        with pytest.raises(Forbidden) as refused:
            theirs.send("a", 1)
        assert refused.value.code == "missing_scope"
        rotated = relay.keys.rotate(made.id, overlap_hours=0)
        assert rotated.key not in {None, made.key}
        wait_until(lambda: is_refused(theirs), 10, "the old key is refused")
    assert relay.keys.get(rotated.id).key is None
    relay.keys.revoke(rotated.id)
    assert relay.keys.get(rotated.id).revoked_at is not None
    assert {made.id, rotated.id} < {one.id for one in relay.keys.list()}
    with pytest.raises(Forbidden):
        relay.keys.create("x", ["read"], operator=True)


def is_refused(relay: Relay) -> bool:
    """Whether the client's key is not good any more. Other processes hear of it within two seconds."""
    try:
        list(relay.events(limit=1))
    except Unauthorized:
        return True
    return False


def test_keys_by_command(typed: Type) -> None:
    made = typed("keys", "create", "billing", "--scope", "read", "--scope", "events:write", "--expires", "2030-01-01")
    assert made.status == 0, made.said
    assert made.out.split()[1].startswith("rk_")
    name = made.out.split()[3]
    listed = typed("keys", "list")
    assert name in listed.out
    assert made.out.split()[1] not in listed.out
    assert typed("show", name).out.startswith("id ")
    assert typed("keys", "show", name, "--json").document["scopes"] == ["read", "events:write"]
    rotated = typed("keys", "rotate", name, "--overlap-hours", "1", "--json").document
    assert rotated["key"].startswith("rk_")
    asked = typed("keys", "revoke", rotated["id"], answer="n\n")
    assert (asked.status, "billing" in asked.err) == (1, True)
    assert typed("keys", "revoke", rotated["id"], "--yes").out == f"{rotated['id']} is revoked.\n"
    assert "revoked" in typed("keys", "list").out
    assert typed("keys", "create", "x", "--scope", "nonsense").status == 1
    assert typed("keys", "create", "x").status == 2


def test_tenants_are_an_operators(operator: Relay, relay: Relay, tenant: str) -> None:
    made = operator.tenants.create("Acme", unknown_types="refuse")
    assert made.id.startswith("ten_")
    assert (made.name, made.unknown_types) == ("Acme", "refuse")
    changed = operator.tenants.update(made.id, etag=made.etag, name="Acme Ltd", unknown_types=None)
    assert (changed.name, changed.unknown_types) == ("Acme Ltd", None)
    with pytest.raises(Changed):
        operator.tenants.update(made.id, etag=made.etag, name="x")
    assert operator.tenants.get(made.id).name == "Acme Ltd"
    assert {made.id, tenant} < {one.id for one in operator.tenants.list()}
    assert [one.id for one in relay.tenants.list()] == [tenant]
    with pytest.raises(NotFound):
        relay.tenants.get(made.id)
    with pytest.raises(Forbidden):
        relay.tenants.create("x")


def test_tenants_by_command(typed: Type, operator_key: str) -> None:
    def by_operator(*words: str) -> str:
        said = typed("tenants", *words, RELAY_KEY=operator_key)
        assert said.status == 0, said.said
        assert operator_key not in said.out + said.err
        return said.out

    name = f"t{datetime.now(UTC):%H%M%S%f}"
    assert name in by_operator("create", "A tenant", "--id", name, "--unknown-types", "accept")
    assert "Renamed" in by_operator("update", name, "--name", "Renamed")
    assert "Renamed" in by_operator("show", name)
    assert name in by_operator("list", "--json")
    made = typed("endpoints", "list", "--tenant", name, RELAY_KEY=operator_key)
    assert made.status == 0
    assert typed("tenants", "create", "x").status == 1
    assert typed("tenants", "update", name, RELAY_KEY=operator_key).status == 2


def test_stats_are_the_tenants(relay: Relay, typed: Type) -> None:
    relay.endpoints.create(URL)
    relay.send_batch({"type": "a", "data": n} for n in range(3))
    stats = relay.stats()
    assert (stats.unsettled, stats.due, stats.unknown, stats.endpoints, stats.more) == (3, 3, 0, 1, False)
    said = typed("stats")
    assert ["unsettled", "3"] in [line.split() for line in said.out.splitlines()]
    assert ["unknown", "0"] in [line.split() for line in said.out.splitlines()]
    assert typed("stats", "--json").document["unsettled"] == 3


def test_content_is_removed_on_request(relay: Relay, tenant: str) -> None:
    sent = relay.send("a", {"name": "Ada"}, source="web")
    expunged = relay.expunge_event(sent.id, reason="Ada asked for it.")
    assert (expunged.source, expunged.expunged_at is not None) == (None, True)
    relay.send("a", {"name": "Eve"})
    with pytest.raises(Invalid):
        relay.tenants.expunge(tenant, confirm="another", reason="Asked for.")
    job = relay.tenants.expunge(tenant, confirm=tenant, reason="Asked for.", dry_run=True)
    assert (job.kind, job.dry_run, job.reason) == ("expunge", True, "Asked for.")
