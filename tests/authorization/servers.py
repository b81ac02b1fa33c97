"""A token server (RFC 6749, 4.4) and a receiver that takes its tokens. Both are real HTTP servers."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from deliveries.models import Endpoint
from tests.receiver import Answer, Received, Receiver
from tests.support.deliveries import endpoint

CLIENT, CLIENT_SECRET, PASSWORD, BEARER, KEPT = (
    "relay",
    "hunter/client+é",
    "hunter:päss",
    "hunter-bearer",
    "hunter-kept",
)
TOKEN = "hunter-token"


def secrets_of(text: str) -> list[str]:
    """The secrets that `text` holds."""
    encoded = [base64.b64encode(f"relay:{PASSWORD}".encode()).decode()]
    return [one for one in ("hunter", CLIENT_SECRET, PASSWORD, *encoded) if one in text]


class TokenServer(Receiver):
    """Gives out numbered tokens that live for `life_s` by what it says; `revoke` ends those that are out.

    `answers` are given instead, one each, while there are some.
    """

    def __init__(self, life_s: object = 3600) -> None:
        super().__init__(self._give)
        self.life_s = life_s
        self.issued = 0
        self.valid: set[str] = set()
        self._issuing = threading.Lock()

    @property
    def forms(self) -> list[dict[str, list[str]]]:
        return [parse_qs(one.body.decode()) for one in self.requests]

    def revoke(self) -> None:
        self.valid.clear()

    def _give(self, received: Received) -> Answer:
        if not self._known(received):
            return error(401, "invalid_client")
        with self._issuing:
            self.issued += 1
            token = f"{TOKEN}-{self.issued}"
            self.valid.add(token)
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}
        return Answer(body=json.dumps(body).encode(), headers=(("Content-Type", "application/json"),))

    def _known(self, received: Received) -> bool:
        form = parse_qs(received.body.decode())
        if form.get("grant_type") != ["client_credentials"]:
            return False
        if "client_id" in form:
            return (form["client_id"], form["client_secret"]) == ([CLIENT], [CLIENT_SECRET])
        kind, _, text = received.headers.get("authorization", "").partition(" ")
        name, _, secret = base64.b64decode(text).decode().partition(":")
        return kind == "Basic" and (unquote_plus(name), unquote_plus(secret)) == (CLIENT, CLIENT_SECRET)


def error(status: int, code: str, *headers: tuple[str, str]) -> Answer:
    body = json.dumps({"error": code, "error_description": "hunter is not known here"}).encode()
    return Answer(status, headers=headers, body=body)


class Guarded(Receiver):
    """A receiver that answers 401 to whoever brings no valid token of `server`."""

    def __init__(self, server: TokenServer) -> None:
        super().__init__(self._judge)
        self._server = server

    def _judge(self, received: Received) -> Answer:
        kind, _, token = received.headers.get("authorization", "").partition(" ")
        return Answer(204 if kind == "Bearer" and token in self._server.valid else 401)

    @property
    def tokens(self) -> list[str]:
        """What each request brought."""
        return [one.headers.get("authorization", "").removeprefix("Bearer ") for one in self.requests]


def oauth2(url: str, **parts: Any) -> dict[str, Any]:
    return {"kind": "oauth2", "token_url": url, "client_id": CLIENT, "client_secret": CLIENT_SECRET, **parts}


def guarded(
    tenant: str, receiver: Receiver, url: str, *, columns: dict[str, Any] | None = None, **parts: Any
) -> Endpoint:
    return endpoint(tenant, receiver.url, auth=oauth2(url, **parts), **(columns or {}))[0]
