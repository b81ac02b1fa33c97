"""Asking a token server for an access token (RFC 6749, 4.4): one bounded request, and what its answer means.

Nothing here logs, raises or shows a token, a client's secret or a byte of a token server's body.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

from deliveries import authorization
from deliveries.egress import EgressPolicy
from deliveries.outcomes import retry_after_seconds
from deliveries.rules import auth as kinds
from deliveries.transport import single

TIMEOUT_MS, CONNECT_TIMEOUT_MS = 10_000, 5_000
TOKEN_LENGTH = 8192
UNSTATED_LIFE_S, LONGEST_LIFE_S = 300.0, 86_400.0

_PASSING = frozenset({408, 425, 429})
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """`life_s` is what the server said: a finite number, but perhaps a tiny or a negative one."""

    text: str
    life_s: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no token."""

    sentence: str
    final: bool
    """It is this client that is refused; asking again does not help soon."""
    wait_s: float = 0.0


def ask(auth: dict[str, Any], secret: str) -> Token | Trouble:
    """Ask a token server once, for up to `TIMEOUT_MS`."""
    form: dict[str, str] = {"grant_type": "client_credentials"}
    if auth.get("scopes"):
        form["scope"] = " ".join(auth["scopes"])
    if auth.get("audience"):
        form["audience"] = auth["audience"]
    headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")]
    if auth.get("auth_style") == kinds.BODY:
        form |= {"client_id": auth["client_id"], "client_secret": secret}
    else:  # RFC 6749, 2.3.1: encoded as in a form first
        headers.append(("authorization", authorization.basic(quote_plus(auth["client_id"]), quote_plus(secret))))
    answer = single.fetch(
        "POST",
        auth["token_url"],
        tuple(headers),
        timeout_ms=TIMEOUT_MS,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        policy=EgressPolicy.from_settings(),
        body=urlencode(form).encode("ascii"),
    )
    if answer.status is None:
        return Trouble(f"The token server could not be asked. {answer.error}", final=False)
    if answer.status != 200:
        wait = retry_after_seconds(answer.headers) or 0.0
        final = 300 <= answer.status < 500 and answer.status not in _PASSING
        return Trouble(f"The token server answered {answer.status}{_code(answer.body)}.", final, wait)
    if not answer.body_complete:
        return Trouble("The token server's answer was cut short, or longer than 16 KiB.", final=False)
    return _read(answer.body)


def _read(body: bytes) -> Token | Trouble:
    """The token of a successful answer (RFC 6749, 5.1)."""
    said = _json(body)
    text, kind, life = said.get("access_token"), said.get("token_type", "bearer"), said.get("expires_in")
    if not isinstance(text, str) or not text:
        return Trouble("The token server answered 200 without an access token.", final=True)
    if len(text) > TOKEN_LENGTH or not _VISIBLE.fullmatch(text):
        return Trouble(
            f"The access token is longer than {TOKEN_LENGTH} characters, or not printable ASCII.", final=True
        )
    if str(kind).lower() != "bearer":
        return Trouble("The access token is of a type other than bearer.", final=True)
    return Token(text, min(_seconds(life), LONGEST_LIFE_S))


def _seconds(life: object) -> float:
    """The life that a server states: a finite number. Anything else states nothing."""
    if isinstance(life, str) and life.isascii() and life.isdigit():  # some servers quote it
        life = float(life)
    return life if isinstance(life, float) and math.isfinite(life) else UNSTATED_LIFE_S


def _code(body: bytes) -> str:
    """The error's code (RFC 6749, 5.2), when it looks like one."""
    code = _json(body).get("error")
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _json(body: bytes) -> dict[str, Any]:
    try:
        # Python reads NaN and Infinity too; and an integer has as many digits as its sender likes.
        said = json.loads(body, parse_int=float)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
