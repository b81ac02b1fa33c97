"""How an endpoint authenticates: what each kind takes, what of it is secret, and what it must be like.

- basic (RFC 7617): `username`, `password`
- bearer (RFC 6750): `token`
- oauth2, client credentials (RFC 6749, 4.4): `token_url`, `client_id`, `client_secret`, and perhaps `scopes`,
  `audience`, `auth_style` (how the client names itself: in a "header" or in the "body")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from deliveries.rules import columns
from deliveries.rules.broken import Problem, RuleBroken

BASIC, BEARER, OAUTH2 = "basic", "bearer", "oauth2"
HEADER, BODY = "header", "body"
SECRET = {BASIC: "password", BEARER: "token", OAUTH2: "client_secret"}
"""The one part of each kind that is secret."""
NAME_LENGTH, SECRET_LENGTH, TOKEN_LENGTH = 255, 1024, 4096
SCOPES, SCOPE_LENGTH = 50, 255

_TAKES: dict[str, dict[str, bool]] = {  # and whether it must be given
    BASIC: {"username": True, "password": True},
    BEARER: {"token": True},
    OAUTH2: {
        "token_url": True, "client_id": True, "client_secret": True,
        "scopes": False, "audience": False, "auth_style": False,
    },
}  # fmt: skip
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, 3.3


def kept(given: Mapping[str, Any], stored: Mapping[str, Any] | None) -> bool:
    """Whether `given` leaves its secret out and may go on with the stored one.

    The secret of a client is kept for its own token server only: whoever could name another would be sent it.
    """
    kind = given.get("kind")
    if stored is None or stored.get("kind") != kind or SECRET.get(str(kind), "") in given:
        return False
    return kind != OAUTH2 or given.get("token_url", stored.get("token_url")) == stored.get("token_url")


def problems(given: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> tuple[Problem, ...]:
    """Every rule that `given` breaks. `stored` is what is there now, without its secret, which may be kept."""
    kind = given.get("kind")
    takes = _TAKES.get(str(kind))
    if takes is None:
        return (Problem("auth.kind", f"must be one of {', '.join(_TAKES)}"),)
    parts = {name: value for name, value in given.items() if name != "kind"}
    found = [Problem(f"auth.{name}", f"is not a part of {kind}") for name in parts if name not in takes]
    goes_on = kept(given, stored)
    for name, required in takes.items():
        if name not in parts:
            if required and not (goes_on and name == SECRET[str(kind)]):
                found.append(Problem(f"auth.{name}", "is required"))
            continue
        try:
            _RULES[name](parts[name])
        except RuleBroken as broken:
            found.append(Problem(f"auth.{name}", str(broken)))
    return tuple(found)


def _text(longest: int) -> Callable[[Any], None]:
    def rule(value: Any) -> None:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise RuleBroken(f"must have 1 to {longest} characters")
        if not value.isprintable():
            raise RuleBroken("holds a character that is not printable")

    return rule


def _username(value: Any) -> None:
    _text(NAME_LENGTH)(value)
    if ":" in value:
        raise RuleBroken("may not contain a colon")


def _token(value: Any) -> None:
    if not isinstance(value, str) or len(value) > TOKEN_LENGTH or not _VISIBLE.fullmatch(value):
        raise RuleBroken(f"must be 1 to {TOKEN_LENGTH} characters of printable ASCII without spaces")


def _token_url(value: Any) -> None:
    if not isinstance(value, str):
        raise RuleBroken("must be a URL")
    columns.url(value)


def _scopes(value: Any) -> None:
    if not isinstance(value, list) or len(value) > SCOPES:
        raise RuleBroken(f"is a list of at most {SCOPES} scopes")
    for scope in value:
        if not isinstance(scope, str) or len(scope) > SCOPE_LENGTH or not _SCOPE.fullmatch(scope):
            raise RuleBroken(
                f"a scope is 1 to {SCOPE_LENGTH} characters of printable ASCII without spaces, quotes and backslashes"
            )


def _audience(value: Any) -> None:
    if value is not None:
        _text(columns.URL_LENGTH)(value)


def _auth_style(value: Any) -> None:
    if value not in (HEADER, BODY):
        raise RuleBroken(f"must be {HEADER} or {BODY}")


_RULES: dict[str, Callable[[Any], None]] = {
    "username": _username,
    "password": _text(SECRET_LENGTH),
    "token": _token,
    "token_url": _token_url,
    "client_id": _text(NAME_LENGTH),
    "client_secret": _text(SECRET_LENGTH),
    "scopes": _scopes,
    "audience": _audience,
    "auth_style": _auth_style,
}
