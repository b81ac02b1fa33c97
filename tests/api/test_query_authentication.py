"""What a question brings besides its signature: the endpoint's TLS; its credentials to the server of `url` only."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from deliveries.models import Acknowledgement, Endpoint
from ledger.managers.operation import Proof
from tests.api import rows
from tests.api.rows import Caller
from tests.authorization.servers import BEARER, CLIENT, CLIENT_SECRET, KEPT, PASSWORD, TokenServer, error, secrets_of
from tests.receiver import Answer, Received, Receiver
from tests.support.certificates import Authority
from tests.support.database import unguarded
from tests.support.waiting import wait_until

BASIC = f"Basic {b64encode(f'relay:{PASSWORD}'.encode()).decode()}"
AUTHS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "basic", "username": "relay", "password": PASSWORD}, BASIC),
    ({"kind": "bearer", "token": BEARER}, f"Bearer {BEARER}"),
]


def knows(_: Received) -> Answer:
    return Answer(body=json.dumps({"outcome": "processed"}).encode())


def unknown(by: Caller, url: str, query_url: str, **fields: Any) -> str:
    """The id of an unknown operation of an endpoint at `url` that can be asked at `query_url`."""
    capability = {"idempotent": False, "query_url": query_url}
    target = rows.endpoint(by, url=url, capability=capability, **fields)
    (delivery,) = (one for one in rows.deliveries_of(by, rows.event(by)) if one["endpoint_id"] == target)
    rows.settle(rows.claim(delivery["operation_id"]), Proof.AMBIGUOUS)
    return str(delivery["operation_id"])


def ask(by: Caller, operation_id: str) -> Any:
    return by.post(f"/v1/operations/{operation_id}/query")


def test_a_receiver_of_a_private_authority_that_demands_a_client_certificate_can_be_asked(
    mine: Caller, tmp_path: Path
) -> None:
    servers, clients = Authority("servers"), Authority("clients")
    client, stranger = clients.sign("relay"), Authority("strangers").sign("relay")
    with Receiver(knows, tls=servers.server(tmp_path, demands=clients)) as receiver:
        for pair, trusted, said in (
            (stranger, servers, "unknown"),
            (client, clients, "unknown"),
            (client, servers, "processed"),
        ):
            tls = {
                "ca_certificates": trusted.pem, "client_certificate": pair.certificate, "client_key": pair.key,
            }  # fmt: skip
            # At another port than deliveries go to: TLS is shown everywhere.
            answer = ask(mine, unknown(mine, rows.URL, f"{receiver.url}ask", tls=tls))
            assert (answer.status_code, answer.json()["said"]) == (200, said), answer.content
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(("auth", "header"), AUTHS, ids=["basic", "bearer"])
def test_the_server_of_the_url_is_asked_with_what_a_delivery_brings(
    auth: dict[str, Any], header: str, mine: Caller
) -> None:
    with Receiver(knows) as receiver:
        operation_id = unknown(
            mine, f"{receiver.url}hook", f"{receiver.url}ask?a=b", auth=auth,
            headers={"X-Plain": "seen", "Accept": "x/y"},
            secret_headers={"X-Key": KEPT},
        )  # fmt: skip
        answer = ask(mine, operation_id)
    assert answer.json()["said"] == "processed"
    headers = receiver.requests[0].headers
    assert [headers[name] for name in ("authorization", "x-key", "x-plain")] == [header, KEPT, "seen"]
    assert headers["accept"] == "application/json"
    assert not secrets_of(answer.content.decode())


@pytest.mark.parametrize("elsewhere", ["http://localhost:{port}/hook", "http://127.0.0.1:9/hook"])
@pytest.mark.parametrize(("auth", "header"), AUTHS, ids=["basic", "bearer"])
def test_another_server_gets_no_credentials(elsewhere: str, auth: dict[str, Any], header: str, mine: Caller) -> None:
    with Receiver(knows) as receiver:
        operation_id = unknown(
            mine, elsewhere.format(port=receiver.port), receiver.url, auth=auth, headers={"X-Plain": "seen"},
            secret_headers={"X-Key": KEPT},
        )  # fmt: skip
        assert ask(mine, operation_id).json()["said"] == "processed"
    (asked,) = receiver.requests
    assert not {"authorization", "x-key", "x-plain"} & set(asked.headers)
    assert not secrets_of(repr(asked))


def test_the_scheme_is_a_part_of_where_it_goes(mine: Caller, tmp_path: Path) -> None:
    authority = Authority()
    with Receiver(knows, tls=authority.server(tmp_path)) as receiver:
        operation_id = unknown(
            mine, receiver.url.replace("https", "http"), receiver.url, auth=AUTHS[0][0],
            tls={"ca_certificates": authority.pem},
        )  # fmt: skip
        assert ask(mine, operation_id).json()["said"] == "processed"
    assert "authorization" not in receiver.requests[0].headers


def test_an_access_token_is_used_when_it_is_at_hand_and_until_then_nothing_is_asked(mine: Caller) -> None:
    with TokenServer() as server, Receiver(knows) as receiver:
        auth = {"kind": "oauth2", "token_url": server.url, "client_id": CLIENT, "client_secret": CLIENT_SECRET}
        operation_id = unknown(mine, f"{receiver.url}hook", receiver.url, auth=auth)
        first = ask(mine, operation_id)
        assert (first.status_code, first.json()["reason"]) == (409, "no_token"), first.content
        assert not Acknowledgement.objects.exists(), "it stays due"
        wait_until(lambda: ask(mine, operation_id).status_code == 200, 10, "it was asked")
    (asked,) = receiver.requests
    assert asked.headers["authorization"].removeprefix("Bearer ") in server.valid
    assert server.issued == 1


def test_a_refused_client_is_on_record_as_the_reason_why_nothing_was_asked(mine: Caller) -> None:
    # The pause between two looks at a server that is refusing is longer than the test: the answer is the first's.
    with TokenServer() as server, Receiver(knows) as receiver:
        server.answers.extend([error(401, "invalid_client")] * 9)
        auth = {"kind": "oauth2", "token_url": server.url, "client_id": CLIENT, "client_secret": CLIENT_SECRET}
        operation_id = unknown(mine, f"{receiver.url}hook", receiver.url, auth=auth)
        wait_until(lambda: ask(mine, operation_id).status_code == 200, 10, "it was judged")
        assert receiver.connections == 0
    word = Acknowledgement.objects.get()
    assert "It was not asked. No access token: The token server answered 401" in word.detail
    assert not secrets_of(word.detail)


@pytest.mark.parametrize("column", ["auth_sealed", "secret_headers_sealed", "client_key_sealed"])
def test_nothing_is_asked_without_what_does_not_open(column: str, mine: Caller) -> None:
    client = Authority().sign("relay")
    with Receiver(knows) as receiver:
        operation_id = unknown(
            mine, receiver.url, receiver.url, auth=AUTHS[0][0], secret_headers={"X-Key": KEPT},
            tls={"client_certificate": client.certificate, "client_key": client.key},
        )  # fmt: skip
        with unguarded():
            Endpoint.objects.update(**{column: "0.AAAA"})
        answer = ask(mine, operation_id)
        assert receiver.connections == 0
    assert (answer.status_code, answer.json()["said"]) == (200, "unknown")
    assert answer.json()["detail"].startswith("It was not asked, because nothing is sent unsigned or unauthenticated")
