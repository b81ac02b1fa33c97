"""`/v1/endpoints`: authentication, secret headers, TLS, order and rate, by their rules; and no secret given back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from django.db import connection
from django.test.utils import CaptureQueriesContext

from deliveries import authorization, ids
from deliveries.models import Endpoint
from deliveries.rules.columns import MOST_PATIENCE
from deliveries.sealing import unseal
from tests.api import rows
from tests.api.rows import URL, Caller
from tests.support.certificates import Authority, pem_of
from tests.support.database import unguarded

pytestmark = pytest.mark.django_db

AUTHORITY = Authority()
CLIENT = AUTHORITY.sign("client")
OTHER = AUTHORITY.sign("other client")
EXPIRED = AUTHORITY.sign("client", until=timedelta(hours=-1))
TOKENS = "http://127.0.0.1:9/token"
BASIC = {"kind": "basic", "username": "relay", "password": "hunter-basic"}
BEARER = {"kind": "bearer", "token": "hunter-bearer"}
OAUTH2 = {"kind": "oauth2", "token_url": TOKENS, "client_id": "relay", "client_secret": "hunter-oauth2"}


def locked_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode()


def without(auth: dict[str, Any], part: str) -> dict[str, Any]:
    return {name: value for name, value in auth.items() if name != part}


# what is given, the field that the error names
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"filter": []}, "filter"),
    ({"filter": {}}, "filter"),
    ({"filter": {"a": {"$nope": 1}}}, "filter"),
    ({"envelope": "xml"}, "envelope"),
    ({"conflict_accepts": 1}, "conflict_accepts"),
    ({"signature": "v2"}, "signature"),
    ({"signature": "v1a", "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}, "signature"),
    ({"order": {"patience": 3}}, "order.patience"),
    ({"order": {"ordered": True, "patience": 0}}, "order.patience"),
    ({"order": {"ordered": True, "patience": MOST_PATIENCE + 1}}, "order.patience"),
    ({"order": {"ordered": None}}, "order.ordered"),
    ({"rate_limit": {"burst": 3}}, "rate_limit.burst"),
    ({"rate_limit": {"per_second": 0}}, "rate_limit.per_second"),
    ({"rate_limit": {"per_second": -1}}, "rate_limit.per_second"),
    ({"rate_limit": {"per_second": 10_001}}, "rate_limit.per_second"),
    ({"rate_limit": {"per_second": 1, "burst": 0}}, "rate_limit.burst"),
    ({"rate_limit": {"per_second": 1, "burst": 100_001}}, "rate_limit.burst"),
    ({"rate_limit": {"per_second": 1, "burst": 1.5}}, "rate_limit.burst"),
    ({"limits": {"connect_timeout_ms": 99}}, "limits.connect_timeout_ms"),
    ({"limits": {"connect_timeout_ms": 15_001}}, "limits.connect_timeout_ms"),
    ({"limits": {"connect_timeout_ms": 900, "timeout_ms": 800}}, "limits.connect_timeout_ms"),
    ({"secret_headers": {"Host": "x"}}, "secret_headers"),
    ({"secret_headers": {"webhook-id": "x"}}, "secret_headers"),
    ({"secret_headers": {"User-Agent": "x"}}, "secret_headers"),
    ({"headers": {"USER-AGENT": "x"}}, "headers"),
    ({"secret_headers": {"X-A": "a\r\nX-B: b"}}, "secret_headers"),
    ({"secret_headers": {"X-A": "é"}}, "secret_headers"),
    ({"secret_headers": {"X-A": "1", "x-a": "2"}}, "secret_headers"),
    ({"secret_headers": {"X-A": 1}}, "secret_headers.X-A"),
    ({"secret_headers": {"X-A": "1"}, "headers": {"x-a": "2"}}, "secret_headers"),
    ({"secret_headers": {f"X-{n}": "" for n in range(30)}, "headers": {f"Y-{n}": "" for n in range(30)}},
     "secret_headers"),
    ({"secret_headers": {"X-A": "v" * 4096, "X-B": "v" * 4096}}, "secret_headers"),
    ({"auth": {}}, "auth.kind"),
    ({"auth": {"kind": "digest"}}, "auth.kind"),
    ({"auth": "Basic eDp5"}, "auth"),
    ({"auth": without(BASIC, "username")}, "auth.username"),
    ({"auth": without(BASIC, "password")}, "auth.password"),
    ({"auth": {**BASIC, "username": "a:b"}}, "auth.username"),
    ({"auth": {**BASIC, "username": "a\nb"}}, "auth.username"),
    ({"auth": {**BASIC, "password": ""}}, "auth.password"),
    ({"auth": {**BASIC, "password": "a\0b"}}, "auth.password"),
    ({"auth": {**BASIC, "password": None}}, "auth.password"),
    ({"auth": {**BASIC, "token": "x"}}, "auth.token"),
    ({"auth": {**BEARER, "token": "a b"}}, "auth.token"),
    ({"auth": {**BEARER, "token": "a\r\nX-B: b"}}, "auth.token"),
    ({"auth": {**BEARER, "token": "é"}}, "auth.token"),
    ({"auth": {**BEARER, "token": "x" * 4097}}, "auth.token"),
    ({"auth": without(OAUTH2, "token_url")}, "auth.token_url"),
    ({"auth": without(OAUTH2, "client_id")}, "auth.client_id"),
    ({"auth": without(OAUTH2, "client_secret")}, "auth.client_secret"),
    ({"auth": {**OAUTH2, "token_url": "http://10.0.0.1/token"}}, "auth.token_url"),
    ({"auth": {**OAUTH2, "token_url": "http://169.254.169.254/latest"}}, "auth.token_url"),
    ({"auth": {**OAUTH2, "token_url": "file:///etc/passwd"}}, "auth.token_url"),
    ({"auth": {**OAUTH2, "scopes": ["a b"]}}, "auth.scopes"),
    ({"auth": {**OAUTH2, "scopes": [""]}}, "auth.scopes"),
    ({"auth": {**OAUTH2, "scopes": ["x"] * 51}}, "auth.scopes"),
    ({"auth": {**OAUTH2, "auth_style": "query"}}, "auth.auth_style"),
    ({"auth": {**OAUTH2, "password": "x"}}, "auth.password"),
    ({"auth": BEARER, "headers": {"Authorization": "x"}}, "auth"),
    ({"auth": BEARER, "secret_headers": {"authorization": "x"}}, "auth"),
    ({"tls": {"client_certificate": "hello", "client_key": CLIENT.key}}, "tls.client_certificate"),
    ({"tls": {"client_certificate": CLIENT.certificate}}, "tls.client_key"),
    ({"tls": {"client_key": CLIENT.key}}, "tls.client_certificate"),
    ({"tls": {"client_certificate": CLIENT.certificate, "client_key": OTHER.key}}, "tls.client_key"),
    ({"tls": {"client_certificate": CLIENT.certificate, "client_key": "hello"}}, "tls.client_key"),
    ({"tls": {"client_certificate": CLIENT.certificate, "client_key": locked_key()}}, "tls.client_key"),
    ({"tls": {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key[:-60]}}, "tls.client_key"),
    ({"tls": {"client_certificate": EXPIRED.certificate, "client_key": EXPIRED.key}}, "tls.client_certificate"),
    ({"tls": {"client_certificate": CLIENT.certificate + CLIENT.key, "client_key": CLIENT.key}},
     "tls.client_certificate"),
    ({"tls": {"client_certificate": CLIENT.certificate.replace("M", "!"), "client_key": CLIENT.key}},
     "tls.client_certificate"),
    ({"tls": {"ca_certificates": "hello"}}, "tls.ca_certificates"),
    ({"tls": {"ca_certificates": CLIENT.certificate}}, "tls.ca_certificates"),
    ({"tls": {"ca_certificates": AUTHORITY.pem * 11}}, "tls.ca_certificates"),
    ({"tls": {"ca_certificates": Authority(until=timedelta(hours=-1)).pem}}, "tls.ca_certificates"),
    ({"tls": {"ca_certificates": AUTHORITY.pem + CLIENT.key}}, "tls.ca_certificates"),
    ({"tls": {"verify": False}}, "tls.verify"),
]  # fmt: skip
IDS = [json.dumps(changes)[:60] for changes, _ in WRONG]


@pytest.mark.parametrize(("changes", "field"), WRONG, ids=IDS)
def test_a_broken_rule_is_told_by_its_field_and_leaves_nothing(
    changes: dict[str, Any], field: str, mine: Caller
) -> None:
    before = rows.row_counts()
    answer = mine.post("/v1/endpoints", {"url": URL, **changes})
    assert answer.status_code == 422, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert rows.row_counts() == before
    assert "hunter" not in answer.content.decode()
    assert CLIENT.key.splitlines()[1] not in answer.content.decode()


CHANGES = [one for one in WRONG if "signature" not in one[0]]


@pytest.mark.parametrize(("changes", "field"), CHANGES, ids=[one for one in IDS if "signature" not in one])
def test_a_change_that_breaks_a_rule_changes_nothing(changes: dict[str, Any], field: str, mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine)}"
    before = mine.get(path).json()
    answer = mine("PATCH", path, {"description": "half a change", **changes})
    assert answer.status_code == 422, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert mine.get(path).json() == before


def test_every_broken_rule_is_told_at_once(mine: Caller) -> None:
    answer = mine.post(
        "/v1/endpoints",
        {
            "url": "http://10.0.0.1/", "filter": {"$nope": 1}, "secret_headers": {"Host": "x"},
            "auth": {"kind": "oauth2", "token_url": "http://10.0.0.1/", "scopes": [""]},
            "tls": {"client_key": "x", "ca_certificates": "y"}, "rate_limit": {"burst": 1}, "order": {"patience": 1},
            "limits": {"timeout_ms": 1, "in_flight": 0},
        },
    )  # fmt: skip
    assert sorted(error["field"] for error in answer.json()["errors"]) == [
        "auth.client_id", "auth.client_secret", "auth.scopes", "auth.token_url", "filter", "limits.in_flight",
        "limits.timeout_ms", "order.patience", "rate_limit.burst", "secret_headers", "tls.ca_certificates",
        "tls.client_certificate", "tls.client_key", "url",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["RSA", "PKCS1", "EC"])
def test_a_key_is_taken_in_every_usual_form(kind: str, mine: Caller) -> None:
    if kind == "EC":
        text = pem_of(ec.generate_private_key(ec.SECP384R1()))
    else:
        form = PrivateFormat.PKCS8 if kind == "RSA" else PrivateFormat.TraditionalOpenSSL
        text = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, form, NoEncryption()).decode()
    tls = {"client_certificate": CLIENT.certificate, "client_key": text}
    (error,) = mine.post("/v1/endpoints", {"url": URL, "tls": tls}).json()["errors"]
    assert error == {"field": "tls.client_key", "detail": "certificate and key do not belong together"}


SECRETS = ("hunter-header", "hunter-basic", "hunter-bearer", "hunter-oauth2", CLIENT.key.splitlines()[1])


def test_secrets_are_kept_sealed_for_their_place_and_are_in_no_answer(
    mine: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [
        mine.post("/v1/endpoints", {
            "url": URL, "headers": {"X-Plain": "seen"}, "secret_headers": {"X-Key": "hunter-header", "X-None": ""},
            "auth": BASIC, "signature": "v1a",
            "tls": {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key,
                    "ca_certificates": AUTHORITY.pem},
        })
    ]  # fmt: skip
    made = answers[0].json()
    path = f"/v1/endpoints/{made['id']}"
    assert made["secret"].startswith("whsk_")
    assert made["public_key"].startswith("whpk_")
    answers += [
        mine("PATCH", path, {"auth": BEARER}),
        mine("PATCH", path, {"auth": {**OAUTH2, "scopes": ["a", "b"], "auth_style": "body"}}),
    ]
    answers += [mine.get(path), mine.get("/v1/endpoints"), mine("PATCH", path, {"secret_headers": {"X-Key": "a\nb"}})]
    for answer in answers:
        assert not [secret for secret in SECRETS if secret in answer.content.decode()]
    assert not [secret for secret in SECRETS if secret in caplog.text]

    shown = mine.get(path).json()
    assert shown["headers"] == {"X-Plain": "seen"}
    assert shown["secret_headers"] == ["X-Key", "X-None"]
    assert {name: value for name, value in shown["auth"].items() if value is not None} == {
        "kind": "oauth2", "token_url": TOKENS, "client_id": "relay", "scopes": ["a", "b"], "auth_style": "body",
    }  # fmt: skip
    assert shown["tls"] == {"client_certificate": CLIENT.certificate, "ca_certificates": AUTHORITY.pem}

    row = Endpoint.objects.get(endpoint_id=ids.parse(ids.ENDPOINT, made["id"]))
    bound = f"endpoint:{row.endpoint_id}"
    assert json.loads(unseal(row.secret_headers_sealed, f"{bound}:headers")) == {"X-Key": "hunter-header", "X-None": ""}
    assert json.loads(unseal(row.auth_sealed, f"{bound}:auth")) == {"client_secret": "hunter-oauth2"}
    assert unseal(row.client_key_sealed, f"{bound}:client_key") == CLIENT.key
    whole = repr(Endpoint.objects.filter(pk=row.pk).values().get())
    assert not [secret for secret in SECRETS if secret in whole]
    assert not [secret for secret in SECRETS if secret in repr(authorization.tls(row))]


def test_a_list_opens_nothing_and_costs_no_query_for_a_row(mine: Caller, settings: Any) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as spent:
            assert mine.get("/v1/endpoints").status_code == 200
        return len(spent)

    rows.endpoint(mine, auth=BASIC, secret_headers={"X-Key": "x"})
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key, by which nothing opens", []
    few = queries()
    for _ in range(3):
        rows.endpoint(mine, auth=OAUTH2)
    assert queries() == few


def opened(endpoint_id: str) -> tuple[dict[str, str], str]:
    """The secret headers and the secret of `auth`, as they would be sent."""
    row = Endpoint.objects.get(endpoint_id=ids.parse(ids.ENDPOINT, endpoint_id))
    return dict(authorization.secret_headers(row)), authorization.secret_of(row) if row.auth_sealed else ""


def test_secret_headers_change_one_by_one_and_null_removes(mine: Caller) -> None:
    endpoint_id = rows.endpoint(mine, secret_headers={"X-A": "1", "X-B": "2"})
    path = f"/v1/endpoints/{endpoint_id}"
    mine("PATCH", path, {"description": "nothing else"})
    assert opened(endpoint_id)[0] == {"X-A": "1", "X-B": "2"}
    mine("PATCH", path, {"secret_headers": {"x-a": "3", "X-C": "4"}})
    assert opened(endpoint_id)[0] == {"X-B": "2", "x-a": "3", "X-C": "4"}
    assert mine("PATCH", path, {"secret_headers": {"X-B": None}}).json()["secret_headers"] == ["x-a", "X-C"]
    assert mine("PATCH", path, {"headers": {"X-C": "plain"}}).status_code == 422
    both = mine("PATCH", path, {"headers": {"X-C": "plain"}, "secret_headers": {"X-C": None}})
    assert (both.json()["headers"], both.json()["secret_headers"]) == ({"X-C": "plain"}, ["x-a"])
    assert mine("PATCH", path, {"secret_headers": None}).json()["secret_headers"] == []
    assert opened(endpoint_id)[0] == {}


def test_a_secret_of_auth_stays_where_only_the_rest_changes(mine: Caller) -> None:
    endpoint_id = rows.endpoint(mine, auth=OAUTH2)
    path = f"/v1/endpoints/{endpoint_id}"
    changed = mine("PATCH", path, {"auth": {**without(OAUTH2, "client_secret"), "scopes": ["a"]}})
    assert changed.json()["auth"]["scopes"] == ["a"]
    assert opened(endpoint_id)[1] == "hunter-oauth2"
    elsewhere = {**without(OAUTH2, "client_secret"), "token_url": "http://127.0.0.1:9/other"}
    (error,) = mine("PATCH", path, {"auth": elsewhere}).json()["errors"]
    assert error == {"field": "auth.client_secret", "detail": "is required"}
    assert mine("PATCH", path, {"auth": without(BASIC, "password")}).status_code == 422
    assert mine("PATCH", path, {"auth": None}).json()["auth"] is None
    assert opened(endpoint_id)[1] == ""


def test_a_change_is_judged_with_what_is_there(mine: Caller) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine, auth=BEARER, limits={'timeout_ms': 2000})}"
    for changes, field in (
        ({"headers": {"Authorization": "x"}}, "headers"),
        ({"secret_headers": {"Authorization": "x"}}, "secret_headers"),
        ({"limits": {"connect_timeout_ms": 3000}}, "limits.connect_timeout_ms"),
        ({"rate_limit": {"burst": 3}}, "rate_limit.burst"),
        ({"order": {"patience": 3}}, "order.patience"),
    ):
        answer = mine("PATCH", path, changes)
        assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert mine("PATCH", path, {"auth": None, "headers": {"Authorization": "x"}}).status_code == 200
    mine("PATCH", path, {"rate_limit": {"per_second": 5, "burst": 9}, "order": {"ordered": True, "patience": 3}})
    assert mine("PATCH", path, {"rate_limit": {"per_second": 6}}).json()["rate_limit"] == {"per_second": 6, "burst": 9}
    (error,) = mine("PATCH", path, {"order": {"ordered": False}}).json()["errors"]
    assert error["field"] == "order.ordered"
    off = mine("PATCH", path, {"order": {"ordered": False, "patience": None}, "rate_limit": None}).json()
    assert (off["order"], off["rate_limit"]) == ({"ordered": False, "patience": None}, None)


def test_certificates_are_replaced_and_removed(mine: Caller) -> None:
    tls = {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key, "ca_certificates": AUTHORITY.pem}
    path = f"/v1/endpoints/{rows.endpoint(mine, tls=tls)}"
    assert mine("PATCH", path, {"tls": {"client_certificate": OTHER.certificate}}).status_code == 422
    assert mine("PATCH", path, {"tls": {"client_key": None}}).status_code == 422
    around = f"Bag Attributes: 1\n{OTHER.certificate}trailing"
    replaced = mine("PATCH", path, {"tls": {"client_certificate": around, "client_key": OTHER.key}})
    assert replaced.json()["tls"]["client_certificate"] == OTHER.certificate
    gone = mine("PATCH", path, {"tls": {"client_certificate": None}}).json()
    assert gone["tls"] == {"client_certificate": None, "ca_certificates": AUTHORITY.pem}
    row = Endpoint.objects.get()
    assert (row.client_certificate, row.client_key_sealed) == ("", "")
    assert mine("PATCH", path, {"tls": None}).json()["tls"]["ca_certificates"] is None


def test_what_cannot_be_opened_must_be_given_again(mine: Caller, settings: Any) -> None:
    endpoint_id = rows.endpoint(mine, auth=BASIC, secret_headers={"X-A": "1", "X-B": "2"})
    path = f"/v1/endpoints/{endpoint_id}"
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key, by which nothing opens", []
    assert mine.get(path).status_code == 200
    assert mine("PATCH", path, {"secret_headers": {"X-A": "3"}}).status_code == 422
    (error,) = mine("PATCH", path, {"auth": without(BASIC, "password")}).json()["errors"]
    assert error == {"field": "auth.password", "detail": "cannot be opened here: give it again"}
    assert mine("PATCH", path, {"secret_headers": {"X-A": "3", "X-B": "4"}, "auth": BASIC}).status_code == 200
    assert opened(endpoint_id) == ({"X-A": "3", "X-B": "4"}, "hunter-basic")


# what the endpoint has, what of it is changed, whether it may have been paused for want of that
PAUSED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"auth": BEARER}, False),
    ({"auth": BASIC}, {"auth": BEARER}, False),
    ({"secret_headers": {"X-A": "1"}}, {"secret_headers": {"X-A": "2"}}, False),
    ({"tls": {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key}}, {"tls": None}, False),
    ({"auth": OAUTH2}, {"description": "x"}, False),
    ({"auth": OAUTH2}, {"secret_headers": {"X-A": "2"}}, False),
    ({"auth": OAUTH2}, {"auth": {**OAUTH2, "client_secret": "hunter-2"}}, True),
    ({"auth": OAUTH2}, {"auth": None}, True),
]


@pytest.mark.parametrize(("has", "change", "over"), PAUSED)
def test_a_pause_that_the_receiver_asked_for_outlasts_a_change_of_secrets(
    has: dict[str, Any], change: dict[str, Any], over: bool, mine: Caller
) -> None:
    path = f"/v1/endpoints/{rows.endpoint(mine, **has)}"
    Endpoint.objects.update(blocked_until=datetime.now(UTC) + timedelta(hours=1))
    changed = mine("PATCH", path, change)
    assert changed.status_code == 200, changed.content
    assert (changed.json()["blocked_until"] is None) == over


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("auth_sealed", {"auth": BEARER}),
        ("secret_headers_sealed", {"secret_headers": None}),
        ("client_key_sealed", {"tls": {"client_certificate": OTHER.certificate, "client_key": OTHER.key}}),
    ],
)
def test_a_pause_for_want_of_a_secret_that_opens_ends_when_it_is_given_again(
    column: str, change: dict[str, Any], mine: Caller
) -> None:
    tls = {"client_certificate": CLIENT.certificate, "client_key": CLIENT.key}
    path = f"/v1/endpoints/{rows.endpoint(mine, auth=BASIC, secret_headers={'X-A': '1'}, tls=tls)}"
    with unguarded():
        Endpoint.objects.update(blocked_until=datetime.now(UTC) + timedelta(hours=1), **{column: "0.AAAA"})
    assert mine("PATCH", path, {"description": "another"}).json()["blocked_until"] is not None
    changed = mine("PATCH", path, change)
    assert changed.status_code == 200, changed.content
    assert changed.json()["blocked_until"] is None


@pytest.mark.parametrize(
    ("change", "anew"),
    [({"enabled": True}, True), ({"url": f"{URL}/new"}, True), ({"url": URL}, False), ({"description": "x"}, False)],
)
def test_an_endpoint_tells_how_it_is_doing_and_begins_anew_elsewhere(
    change: dict[str, Any], anew: bool, mine: Caller
) -> None:
    endpoint_id = rows.endpoint(mine)
    with unguarded(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO deliveries_endpoint_state (endpoint_id, opens, open_until, failing_since, failing_count,"
            " failed_at, last_error) VALUES (%s, 2, clock_timestamp() + interval '1 minute',"
            " clock_timestamp() - interval '1 hour', 7, clock_timestamp(), 'The connection broke.')",
            [ids.parse(ids.ENDPOINT, endpoint_id)],
        )
    shown = mine.get(f"/v1/endpoints/{endpoint_id}").json()["health"]
    assert (shown["breaker"], shown["failing_count"], shown["last_error"]) == ("open", 7, "The connection broke.")
    assert shown["failing_since"] < shown["failed_at"] < shown["disables_at"]
    assert [one["health"] for one in mine.get("/v1/endpoints").json()["items"]] == [shown]
    mine("PATCH", f"/v1/endpoints/{endpoint_id}", change)
    now = mine.get(f"/v1/endpoints/{endpoint_id}").json()["health"]
    assert now["breaker"] == ("closed" if anew else "open")


def test_a_host_that_nobody_knows_is_saved_with_a_warning(mine: Caller) -> None:
    made = mine.post("/v1/endpoints", {"url": f"https://{'x' * 63}.{'y' * 63}.example.com/"}).json()
    assert "cannot be" in made["warning"]
    path = f"/v1/endpoints/{made['id']}"
    assert mine.get(path).json()["warning"] is None
    assert mine("PATCH", path, {"description": "the same URL"}).json()["warning"] is None
    assert mine("PATCH", path, {"url": URL}).json()["warning"] is None
