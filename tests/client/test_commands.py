"""Each command against a real server: what it prints, what it does, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.client import Relay
from tests.api import rows
from tests.api.rows import Caller
from tests.client.conftest import Type
from tests.support.sink import reserve

URL = rows.URL


def test_send_takes_an_argument_a_file_or_standard_input(typed: Type, relay: Relay, tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_bytes(b'{"from": "a file"}')
    for words, answer, payload in (
        (('{"n": 1}',), None, b'{"n": 1}'),
        ((f"@{file}",), None, b'{"from": "a file"}'),
        (("-",), b'["caf\xc3\xa9"]', b'["caf\xc3\xa9"]'),
        ((), None, b"{}"),
    ):
        sent = typed("send", "invoice.paid", *words, "--json", answer=answer)
        assert sent.status == 0, sent.said
        assert relay.event(sent.document["id"]).payload == payload


def test_send_says_all_that_an_event_may_have(typed: Type, relay: Relay) -> None:
    sent = typed(
        "send", "a", "1", "--id", "mine", "--source", "billing", "-m", "k=v=w", "-H", "X-A: b: c",
        "--deliver-at", "2030-01-31T09:30:00Z",
    )  # fmt: skip
    assert sent.status == 0, sent.said
    assert sent.out == "mine  nobody wants it\n"
    event = relay.event("mine")
    assert (event.source, event.metadata, event.headers) == ("billing", {"k": "v=w"}, {"X-A": "b: c"})
    assert event.deliver_at is not None
    assert event.deliver_at.year == 2030
    relay.endpoints.create(URL)
    assert typed("send", "a", "2", "--idempotency-key", "k").out.endswith("  deliveries: 1\n")
    assert typed("send", "a", "2", "--idempotency-key", "k").out.endswith(", accepted before\n")
    conflict = typed("send", "a", "3", "--idempotency-key", "k")
    assert (conflict.status, conflict.out) == (1, "")
    assert "Give other content another key" in conflict.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("send", "a", "{"), "Nothing was sent: data is not JSON"),
        (("send", "a", "@/nowhere/at/all"), "cannot be read: No such file"),
        (("send", "a", "1", "-m", "novalue"), "--metadata takes NAME=VALUE"),
        (("send", "a", "1", "-H", "novalue"), "--header takes NAME:VALUE"),
        (("send", "a", "1", "--deliver-at", "soon"), "A time is like 2h"),
        (("deliveries", "--since", "yesterday"), "A time is like 2h"),
        (("tail", "--status", "lost"), "--status is one of"),
        (("resolve", "a/b/c/1", "--reason", "x"), "Say one of --delivered"),
        (("resolve", "a/b/c/1", "--reason", "x", "--retry", "--failed"), "Say one of --delivered"),
        (("endpoints", "update", "ep_1"), "Say what to change"),
        (("endpoints", "create", URL, "--set", "retry={"), "--set retry is not JSON"),
        (("endpoints", "create", URL, "--filter", "{"), "--filter is not JSON"),
        (("verify", "x", "-H", "a: b"), "Say which secret"),
        (("verify", "x", "-H", "a: b", "--secret", "whsec_!"), "--secret cannot be one"),
        (("listen", "0"), "greater than or equal to 1"),
        (("nonsense",), "No such command"),
        (("send",), "Missing argument"),
        (("send", "a", "1", "--nonsense"), "No such option"),
    ],
)
def test_what_was_typed_wrong_ends_with_2_and_a_sentence(typed: Type, words: tuple[str, ...], why: str) -> None:
    before = rows.row_counts()
    wrong = typed(*words)
    assert (wrong.status, wrong.out) == (2, ""), wrong.said
    assert why in wrong.err
    assert rows.row_counts() == before


def test_what_relay_refuses_ends_with_1_and_a_sentence(typed: Type) -> None:
    for words, why in (
        (("send", "not a type", "1"), "type: must be 1 to 128 characters"),
        (("show", "evt_" + "0" * 32), "No such event. Look at the id"),
        (("show", "dlv_" + "0" * 32), "No such delivery."),
        (("show", "ep_" + "0" * 32), "No such endpoint."),
        (("show", "job_" + "0" * 32), "No such job."),
        (("show", "a/b/c/1"), "No such operation."),
        (("deliveries", "--status", "lost"), "status"),
        (("deliveries", "--endpoint", "x"), "endpoint_id"),
        (("cancel", "dlv_" + "0" * 32, "--yes"), "No such delivery."),
        (("endpoints", "create", "ftp://x"), "url:"),
        (("recover", "ep_" + "0" * 32, "--since", "1h"), "No such endpoint."),
    ):
        refused = typed(*words)
        assert (refused.status, refused.out) == (1, ""), refused.said
        assert why in refused.err, refused.said
        assert refused.err.startswith("relay: ")
        assert refused.err.count("\n") == 1


def test_a_wrong_address_or_key_is_one_sentence_that_says_what_to_do(typed: Type) -> None:
    with reserve() as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    nobody = typed("endpoints", "test", "ep_1", RELAY_URL=url)
    assert nobody.status == 1
    assert (
        nobody.err
        == f"relay: Cannot reach {url}: connection refused. Is Relay running there, and is RELAY_URL right?\n"
    )
    nonsense = typed("stats", RELAY_URL="relay.example")
    assert (nonsense.status, nonsense.err.count("\n")) == (2, 1)
    wrong = typed("deliveries", RELAY_KEY="rk_this-is-not-a-key-of-anybody")
    assert wrong.status == 1
    assert wrong.err == "relay: This key is unknown. Give one that works as RELAY_KEY.\n"
    none = typed("deliveries", RELAY_KEY="")
    assert none.status == 2
    assert none.err == "relay: There is no key: set RELAY_KEY.\n"
    tenant = typed("deliveries", RELAY_TENANT="default")
    assert tenant.status == 1
    assert "cannot name another" in tenant.err


def test_options_come_before_the_environment_and_help_shows_no_key(typed: Type, web: object, key: str) -> None:
    assert typed("deliveries", "--key", "rk_this-is-not-a-key-of-anybody").status == 1
    assert typed("deliveries", "--tenant", "default").status == 1
    shown = typed("deliveries", "--help")
    assert shown.status == 0
    assert "RELAY_KEY" in shown.out


def test_send_batch_tells_of_what_was_refused_by_its_line(typed: Type, relay: Relay, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    good = [json.dumps({"type": "a", "data": n, "id": f"b-{n}"}) for n in range(3)]
    file.write_text("\n".join([good[0], "", json.dumps({"type": "no type", "data": 1}), *good[1:]]) + "\n")
    sent = typed("send-batch", str(file))
    assert sent.status == 1
    assert "line 3: type: must be" in sent.out
    assert "3 accepted, 1 refused" in sent.out
    assert {one.id for one in relay.events()} == {"b-0", "b-1", "b-2"}
    again = typed("send-batch", "-", "--json", answer="\n".join(good))
    assert again.status == 0
    assert [json.loads(line)["replayed"] for line in again.out.splitlines()] == [True] * 3
    broken = typed("send-batch", "-", answer=good[0] + "\nnonsense\n")
    assert broken.status == 2
    assert "Line 2 is no event" in broken.err
    assert typed("send-batch", "/nowhere/at/all").status == 2


def test_show_tells_what_kind_of_thing_an_id_is_by_itself(typed: Type, caller: Caller) -> None:
    operation_id = rows.unknown(caller)
    operation = caller.get(f"/v1/operations/{operation_id}").json()
    for name, of in (
        (operation_id, "operation"),
        (operation["delivery_id"], "delivery"),
        (operation["event_id"], "event"),
        (operation["endpoint_id"], "endpoint"),
    ):
        shown = typed("show", name)
        assert shown.status == 0, shown.said
        assert name in shown.out.splitlines()[0]
        assert shown.out.startswith(of)
        assert typed("show", name, "--json").document["id"] == name
    assert "attempt 1: " in typed("show", operation["delivery_id"]).out
    event = typed("show", operation["event_id"], "--json").document
    assert event["data"] == {"n": 1}
    assert [one["id"] for one in event["delivery_items"]] == [operation["delivery_id"]]


def test_deliveries_are_listed_and_filtered(typed: Type, caller: Caller) -> None:
    assert typed("deliveries").out == "There are none.\n"
    first, second = rows.endpoint(caller), rows.endpoint(caller)
    event = rows.event(caller)
    found = typed("deliveries", "--json").document
    assert {one["endpoint_id"] for one in found} == {first, second}
    assert [one["endpoint_id"] for one in typed("deliveries", "--json", "--endpoint", first).document] == [first]
    assert len(typed("deliveries", "--json", "--event", event, "-n", "1").document) == 1
    assert typed("deliveries", "--json", "--status", "failed").document == []
    assert typed("deliveries", "--json", "--until", "2h").document == []
    assert len(typed("deliveries", "--json", "--since", "2h", "--status", "pending").document) == 2
    table = typed("deliveries").out.splitlines()
    assert table[0].split() == ["delivery", "status", "type", "endpoint", "tries", "changed"]
    assert [line.split()[0] for line in table[1:]] == [one["id"] for one in found]


def test_resolve_asks_before_and_a_no_does_nothing(typed: Type, caller: Caller) -> None:
    operation = rows.unknown(caller)
    assert [one["id"] for one in typed("unknown", "--json").document] == [operation]
    assert typed("unknown").out.splitlines()[1].startswith(operation)
    before = rows.row_counts()
    for answer in ("n\n", "\n", ""):
        asked = typed("resolve", operation, "--delivered", "--reason", "Seen.", answer=answer)
        assert asked.status == 1
        assert "Nothing was done" in asked.err
    assert rows.row_counts() == before
    done = typed("resolve", operation, "--delivered", "--reason", "Seen.", answer="y\n")
    assert done.status == 0, done.said
    assert done.out.splitlines()[-1] == "It is succeeded now."
    assert typed("unknown").out == "There are none: what became of everything is known.\n"
    late = typed("resolve", operation, "--failed", "--reason", "x", "--yes")
    assert late.status == 1
    assert late.err == "relay: It is succeeded, so there is nothing to resolve.\n"


@pytest.mark.parametrize(("flag", "status"), [("--failed", "failed_final"), ("--retry", "unknown")])
def test_resolve_with_yes_does_not_ask(typed: Type, caller: Caller, flag: str, status: str) -> None:
    operation = rows.unknown(caller)
    done = typed("resolve", operation, flag, "--reason", "Seen.", "--yes", "--json")
    assert done.status == 0, done.said
    assert done.document["status"] == status
    assert (done.document["due_at"] is not None) == (flag == "--retry")
    assert done.document["resolutions"][0]["reason"] == "Seen."


def test_query_says_why_a_receiver_cannot_be_asked(typed: Type, caller: Caller) -> None:
    asked = typed("query", rows.unknown(caller))
    assert asked.status == 1
    assert "the endpoint has none" in asked.err


def test_cancel_and_replay_one_delivery_or_a_whole_event(typed: Type, caller: Caller) -> None:
    rows.endpoint(caller)
    event = rows.event(caller)
    (delivery,) = rows.deliveries_of(caller, event)
    assert typed("cancel", delivery["id"], answer="n\n").status == 1
    cancelled = typed("cancel", delivery["id"], "--yes")
    assert (cancelled.status, cancelled.out.startswith("Cancelled")) == (0, True)
    again = typed("cancel", delivery["id"], "--yes")
    assert again.status == 1
    assert "It is over" in again.err
    assert typed("replay", delivery["id"], "--json").document["status"] == "pending"
    table = typed("replay", event)
    assert table.status == 0
    assert "no: it goes on" in table.out
    assert typed("replay", event, "--json").document[0]["reason"] == "goes_on"
    typed("cancel", delivery["id"], "--yes")
    assert typed("replay", event).out.splitlines()[1].split()[-1] == "yes"


def test_endpoints_from_their_making_to_their_end(typed: Type) -> None:
    assert "There are none" in typed("endpoints", "list").out
    made = typed(
        "endpoints", "create", URL, "--type", "invoice.*", "--type", "user.*", "--description", "Billing",
        "-H", "X-Team: a", "--filter", '{"n": 1}', "--set", 'retry={"schedule": [5]}', "--json",
    ).document  # fmt: skip
    assert made["secret"].startswith("whsec_")
    assert (made["types"], made["filter"], made["headers"]) == (["invoice.*", "user.*"], {"n": 1}, {"X-Team": "a"})
    assert made["retry"]["schedule"] == [5]
    name = made["id"]
    shown = typed("endpoints", "create", URL, "--public-key").out
    assert "whsk_" in shown
    assert "public key" in shown
    listed = typed("endpoints", "list")
    assert len(listed.out.splitlines()) == 3
    assert "whsec_" not in listed.out
    assert "whsec_" not in typed("endpoints", "show", name).out
    assert typed("endpoints", "show", name, "--json").document["secret"] is None
    assert typed("endpoints", "update", name, "--description", "Other", "--json").document["description"] == "Other"
    rotated = typed("endpoints", "rotate-secret", name)
    assert rotated.out.split()[1].startswith("whsec_")
    assert typed("endpoints", "rotate-secret", name, "--overlap-hours", "0", answer="n\n").status == 1
    assert typed("endpoints", "rotate-secret", name, "--overlap-hours", "0", "--yes", "--json").document["secret"]
    refused = typed("endpoints", "delete", name, answer="n\n")
    assert refused.status == 1
    assert URL in refused.err
    assert typed("endpoints", "delete", name, "--yes").status == 0
    assert typed("endpoints", "show", name).status == 1


def test_jobs_are_listed_shown_and_cancelled(typed: Type, caller: Caller, relay: Relay) -> None:
    assert typed("jobs").out == "There are none.\n"
    endpoint = rows.endpoint(caller)
    job = caller.post(f"/v1/endpoints/{endpoint}/recover", {"since": "2026-01-01T00:00:00Z", "dry_run": True}).json()
    assert [one["id"] for one in typed("jobs", "--json").document] == [job["id"]]
    assert typed("jobs").out.splitlines()[1].startswith(job["id"])
    assert typed("show", job["id"]).out.splitlines()[1] == "kind        recover, dry run"
    assert typed("jobs", "show", job["id"], "--json").document["status"] == "pending"
    assert typed("jobs", "cancel", job["id"]).out == "It is cancelled, after 0 changes.\n"
    assert typed("jobs", "wait", job["id"]).status == 1
    assert "It is over" in typed("jobs", "cancel", job["id"]).err
