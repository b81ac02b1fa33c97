"""`/v1/endpoints`: settings that keep their rules, and a secret that is shown once."""

from __future__ import annotations

from typing import Any

import pytest

from deliveries import endpoints, ids
from deliveries.models import Endpoint
from deliveries.sealing import unseal
from deliveries.transport.base import Refused, header_lines
from tests.api import rows
from tests.api.rows import URL, Caller

pytestmark = pytest.mark.django_db

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"

# what is changed, the field that the error names
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": "not a url"}, "url"),
    ({"url": ""}, "url"),
    ({"url": "ftp://example.com/"}, "url"),
    ({"url": "http://10.0.0.1/"}, "url"),
    ({"url": "http://169.254.169.254/latest"}, "url"),
    ({"url": "https://user:pass@example.com/"}, "url"),
    ({"url": "https://example.com/\u0000"}, "url"),
    ({"url": "https://example.com/" + "x" * 2048}, "url"),
    ({"url": None}, "url"),
    ({"url": 7}, "url"),
    ({"description": "x" * 2001}, "description"),
    ({"description": "\u0000"}, "description"),
    ({"description": None}, "description"),
    ({"types": "invoice.*"}, "types"),
    ({"types": [""]}, "types"),
    ({"types": ["a b"]}, "types"),
    ({"types": ["a"] * 101}, "types"),
    ({"types": [1]}, "types.0"),
    ({"headers": []}, "headers"),
    ({"headers": {"Bad Name": "x"}}, "headers"),
    ({"headers": {"": "x"}}, "headers"),
    ({"headers": {"X-A": "a\r\nX-B: b"}}, "headers"),
    ({"headers": {"X-A": "a\u0000"}}, "headers"),
    ({"headers": {"X-A": " a"}}, "headers"),
    ({"headers": {"X-A": "a\tb"}}, "headers"),
    ({"headers": {"X" * 101: "a"}}, "headers"),
    ({"headers": {"X-A": "é"}}, "headers"),
    ({"headers": {"X-A": "v" * 4097}}, "headers"),
    ({"headers": {"X-A": "1", "x-a": "2"}}, "headers"),
    ({"headers": {f"X-{n}": "" for n in range(51)}}, "headers"),
    ({"headers": {"X-A": 1}}, "headers.X-A"),
    *(
        ({"headers": {name: "x"}}, "headers")
        for name in (
            "Host", "content-length", "Transfer-Encoding", "connection", "Expect", "Content-Type", "Webhook-Id",
            "webhook-anything", "Idempotency-Key", "Relay-Run-Id", "traceparent", "Proxy-Authorization", "TE",
            "HTTP2-Settings",
        )
    ),
    ({"enabled": "yes"}, "enabled"),
    ({"enabled": None}, "enabled"),
    ({"retry": {"schedule": [0]}}, "retry.schedule"),
    ({"retry": {"schedule": [604801]}}, "retry.schedule"),
    ({"retry": {"schedule": [1] * 51}}, "retry.schedule"),
    ({"retry": {"schedule": ["5"]}}, "retry.schedule.0"),
    ({"retry": {"schedule": [1.5]}}, "retry.schedule.0"),
    ({"retry": {"schedule": [True]}}, "retry.schedule.0"),
    ({"retry": {"jitter": 1.1}}, "retry.jitter"),
    ({"retry": {"jitter": -0.1}}, "retry.jitter"),
    ({"retry": {"max_age_hours": 0}}, "retry.max_age_hours"),
    ({"retry": {"max_age_hours": 2**40}}, "retry.max_age_hours"),
    ({"retry": {"shedule": [5]}}, "retry.shedule"),
    ({"retry": None}, "retry"),
    ({"limits": {"in_flight": 0}}, "limits.in_flight"),
    ({"limits": {"in_flight": 2**70}}, "limits.in_flight"),
    ({"limits": {"timeout_ms": 99}}, "limits.timeout_ms"),
    ({"limits": {"timeout_ms": 20_001}}, "limits.timeout_ms"),
    ({"capability": {"idempotent": 1}}, "capability.idempotent"),
    ({"capability": {"window_hours": -1}}, "capability.window_hours"),
    ({"capability": {"query_url": "http://10.0.0.1/"}}, "capability.query_url"),
    ({"id": "ep_mine"}, "id"),
    ({"tenant_id": "other"}, "tenant_id"),
    ({"secret_sealed": "x"}, "secret_sealed"),
]  # fmt: skip
IDS = [repr(changes)[:60] for changes, _ in WRONG]


@pytest.mark.parametrize(("changes", "field"), WRONG, ids=IDS)
def test_a_bad_endpoint_is_refused_by_name_and_leaves_nothing(
    changes: dict[str, Any], field: str, mine: Caller
) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/endpoints", {"url": URL, **changes})
    assert answer.status_code == 422, answer.content
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert rows.row_counts() == before


@pytest.mark.parametrize(("changes", "field"), WRONG, ids=IDS)
def test_a_bad_change_is_refused_by_name_and_changes_nothing(changes: dict[str, Any], field: str, mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    before = mine.get(path).json()
    answer = mine("PATCH", path, {"description": "half a change", **changes})
    assert answer.status_code == 422, answer.content
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert mine.get(path).json() == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b'{"url": NaN}', b'{"url": "\xff"}', b"[" * 99999])
def test_a_body_that_is_no_json_object_is_malformed(body: bytes, mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    before = rows.row_counts()
    for method, where in (("POST", "/v1/endpoints"), ("PATCH", path)):
        answer = mine(method, where, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), answer.content
    assert rows.row_counts() == before


def test_an_endpoint_needs_no_more_than_a_url(mine: Caller) -> None:
    answer = mine.post("/v1/endpoints", {"url": URL})
    assert answer.status_code == 201
    shown = answer.json()
    assert answer["Location"] == f"/v1/endpoints/{shown['id']}"
    assert shown.pop("created_at") <= shown.pop("updated_at")
    assert shown.pop("secret").startswith("whsec_")
    assert shown.pop("id").startswith("ep_")
    assert shown == {
        "url": URL,
        "description": "",
        "types": [],
        "filter": None,
        "headers": {},
        "secret_headers": [],
        "auth": None,
        "tls": {"client_certificate": None, "ca_certificates": None},
        "envelope": "none",
        "enabled": True,
        "disabled_reason": "",
        "blocked_until": None,
        "order": {"ordered": False, "patience": None},
        "retry": {"schedule": [5, 300, 1800, 7200, 18000, 36000, 36000], "jitter": 0.2, "max_age_hours": 72},
        "limits": {"in_flight": 16, "timeout_ms": None, "connect_timeout_ms": None},
        "rate_limit": None,
        "capability": {"idempotent": True, "window_hours": 72, "query_url": None},
        "conflict_accepts": False,
        "health": {
            "breaker": "closed",
            "open_until": None,
            "failing_since": None,
            "failing_count": 0,
            "disables_at": None,
            "accepted_at": None,
            "failed_at": None,
            "last_error": "",
        },
        "warning": None,
        "public_key": None,
        "question_key": None,
        "line": None,
        "receives": "events",
        "verification": {"required": False, "verified_at": None},
    }
    assert mine.post("/v1/endpoints", {}).json()["errors"] == [{"field": "url", "detail": "is required"}]


def test_an_endpoint_keeps_all_that_it_was_given(mine: Caller) -> None:
    given = {
        "url": "http://localhost:9/hook?x=1",
        "description": "Účetnictví",
        "types": ["invoice.*", "order.made"],
        "filter": {"customer": {"plan": {"$in": ["pro", "enterprise"]}}, "total": {"$gte": 10.5}},
        "headers": {"Authorization": "Bearer x", "X-Empty": ""},
        "envelope": "standard",
        "enabled": False,
        "order": {"ordered": True, "patience": 51},
        "retry": {"schedule": [1, 604800], "jitter": 0, "max_age_hours": 1},
        "limits": {"in_flight": 1, "timeout_ms": 20_000, "connect_timeout_ms": 20_000},
        "rate_limit": {"per_second": 0.001, "burst": 100_000},
        "conflict_accepts": True,
        "capability": {"idempotent": False, "window_hours": 0, "query_url": "http://127.0.0.1:9/query"},
    }
    made = mine.post("/v1/endpoints", given).json()
    shown = mine.get(f"/v1/endpoints/{made['id']}").json()
    assert {name: shown[name] for name in given} == given


def test_the_secret_is_shown_once_and_kept_sealed(mine: Caller) -> None:
    made = mine.post("/v1/endpoints", {"url": URL, "secret": SECRET})
    assert made.json()["secret"] == SECRET
    path = f"/v1/endpoints/{made.json()['id']}"
    for answer in (mine.get(path), mine.get("/v1/endpoints"), mine("PATCH", path, {"description": "x"})):
        assert b"whsec_" not in answer.content
        assert SECRET.encode() not in answer.content
    row = Endpoint.objects.get(endpoint_id=ids.parse(ids.ENDPOINT, made.json()["id"]))
    assert SECRET not in row.secret_sealed
    assert unseal(row.secret_sealed, f"endpoint:{row.endpoint_id}") == SECRET


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_short", "hwsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_%", 1]
)
def test_a_bad_secret_is_named_and_not_repeated(secret: Any, mine: Caller) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/endpoints", {"url": URL, "secret": secret})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["secret"]
    assert not secret or f'"{secret}"' not in answer.content.decode()
    assert rows.row_counts() == before


def test_a_change_touches_only_what_it_names(mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine, types=['a'], retry={'schedule': [7], 'jitter': 0.5})}"
    before = mine.get(path).json()
    answer = mine("PATCH", path, {"retry": {"jitter": 0.1}, "limits": {"timeout_ms": 500}})
    assert answer.status_code == 200
    after = answer.json()
    assert after.pop("updated_at") > before.pop("updated_at")
    before["retry"]["jitter"] = 0.1
    before["limits"]["timeout_ms"] = 500
    assert after == before
    assert mine("PATCH", path, {"limits": {"timeout_ms": None}}).json()["limits"]["timeout_ms"] is None
    unchanged = mine.get(path).json()
    assert mine("PATCH", path, {}).json() == unchanged
    assert mine("PATCH", path, {"secret": SECRET}).status_code == 422


def test_an_endpoint_can_be_disabled_and_enabled(mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    off = mine("PATCH", path, {"enabled": False}).json()
    assert (off["enabled"], off["disabled_reason"]) == (False, "by request")
    assert mine.post("/v1/events", {"type": "a", "data": 1}).json()["deliveries"] == 0
    on = mine("PATCH", path, {"enabled": True}).json()
    assert (on["enabled"], on["disabled_reason"]) == (True, "")
    assert mine.post("/v1/events", {"type": "a", "data": 1}).json()["deliveries"] == 1


def test_a_deleted_endpoint_is_gone_but_its_row_stays(mine: Caller) -> None:
    endpoint_id = rows.endpoint(mine)
    path = f"/v1/endpoints/{endpoint_id}"
    answer = mine("DELETE", path)
    assert (answer.status_code, answer.content) == (204, b"")
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"enabled": True})):
        assert mine(method, path, body).status_code == 404
    assert mine.get("/v1/endpoints").json()["items"] == []
    row = Endpoint.objects.get(endpoint_id=ids.parse(ids.ENDPOINT, endpoint_id))
    assert row.deleted_at is not None
    assert not row.enabled
    assert mine.post("/v1/events", {"type": "a", "data": 1}).json()["deliveries"] == 0


def test_endpoints_are_listed_newest_first_in_pages(mine: Caller) -> None:
    made = [rows.endpoint(mine) for _ in range(3)]
    first = mine.get("/v1/endpoints?limit=2").json()
    second = mine.get(f"/v1/endpoints?limit=2&cursor={first['next_cursor']}").json()
    assert [one["id"] for one in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


def test_the_longest_timeout_follows_the_lease(settings: Any) -> None:
    settings.RELAY_LEASE_TTL_MS, settings.RELAY_HEARTBEAT_MS = 60_000, 10_000
    assert endpoints.longest_timeout_ms() == 45_000


NAMES = ["X-A", "Authorization", "http2-settings", "Host", "te", "Trailer", "a b", "a:b", "", "x\n", "é", "webhook-x"]
VALUES = ["", "a", "a b", "a\tb", "a\r\nb", "a\0b", "a\x7f", "é", "\u2028"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", VALUES)
def test_a_header_that_can_be_stored_can_be_sent(name: str, value: str, mine: Caller) -> None:
    try:
        sendable = bool(header_lines(((name, value),)))
    except Refused:
        sendable = False
    stored = mine.post("/v1/endpoints", {"url": URL, "headers": {name: value}}).status_code == 201
    assert stored == (sendable and not name.startswith("webhook-"))
