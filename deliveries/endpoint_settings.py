"""The settings of an endpoint as its columns: every rule that they must keep, and what is secret in them sealed.

Nothing is written here. A rule that is broken is reported under the column's name, and all of them at once:
`EndpointRefused.problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from deliveries import authorization, signing
from deliveries.models import Endpoint
from deliveries.rules import auth, certificates, columns, together
from deliveries.rules.broken import Problem, RuleBroken
from deliveries.sealing import SealBroken
from deliveries.signing import BadSecret, Signature

_SEALED: dict[str, Callable[[Endpoint], object]] = {
    "auth_sealed": authorization.secret_of,
    "secret_headers_sealed": authorization.secret_headers,
    "client_key_sealed": authorization.client_key,
}
"""What opens each sealed column that is changed here."""


class Changes(TypedDict, total=False):
    """What a caller may set, by the columns' names.

    `secret`, `signature` and `receives` only at creation. `secret_headers` changes the named ones and leaves the
    others; None removes one, or all. `auth` is whole, but for a secret that stays. Of `client_certificate`,
    `client_key` and `ca_certificates` nothing (or None) removes.
    """

    url: str
    description: str
    types: list[str]
    filter: Any
    headers: dict[str, str]
    secret_headers: Mapping[str, str | None] | None
    auth: Mapping[str, Any] | None
    client_certificate: str | None
    client_key: str | None
    ca_certificates: str | None
    envelope: str
    secret: str
    signature: str
    receives: str
    must_verify: bool
    enabled: bool
    idempotent: bool
    window_hours: int
    query_url: str | None
    conflict_accepts: bool
    retry_schedule: list[int]
    retry_jitter: float
    retry_max_age_hours: int
    ordered: bool
    order_patience: int | None
    in_flight: int
    rate_per_second: float | None
    rate_burst: int | None
    timeout_ms: int | None
    connect_timeout_ms: int | None


class EndpointRefused(ValueError):
    """Nothing was stored: `problems` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.detail}" for problem in problems))
        self.problems = problems


def signing_secret(text: Any, signature: Any) -> tuple[str, tuple[Problem, ...]]:
    """The secret of a new endpoint, made when none is given."""
    if signature is not None and signature not in tuple(Signature):
        return "", (Problem("signature", f"must be one of {', '.join(Signature)}"),)
    if text is None:
        return signing.new_secret(Signature(signature or Signature.V1)), ()
    try:
        key = signing.key_of(str(text))
    except BadSecret as bad:
        return "", (Problem("secret", str(bad)),)
    if signature is not None and signature != key.signature:
        return "", (Problem("signature", f"is {signature}, but the secret is one of {key.signature}"),)
    return str(text), ()


def settings_of(row: Endpoint, given: dict[str, Any], problems: tuple[Problem, ...]) -> dict[str, Any]:
    """The columns that `given` comes to on `row`, sealed what is secret; `EndpointRefused` with every problem."""
    assert given.keys() <= Changes.__annotations__.keys(), "a column that nobody may set"
    found = list(problems)
    plain = {name: value for name, value in given.items() if name in columns.RULES}
    for name, value in plain.items():
        found += _told(name, columns.RULES[name], value)
    headers = _secret_headers(row, given, found)
    whole_auth = _auth(row, given, found)
    pem = _pem(row, given, found)
    wanted = {name: plain.get(name, getattr(row, name)) for name in columns.RULES if name != "enabled"} | {
        "secret_headers": row.secret_headers if headers is None else list(headers),
        "auth": given.get("auth", row.auth),
        "client_certificate": pem.get("client_certificate", row.client_certificate),
        "client_key": pem.get("client_key", row.client_key_sealed),
    }
    named = {problem.field.partition(".")[0] for problem in found}
    found += [one for one in together.problems(wanted, given) if one.field not in named]
    if found:
        raise EndpointRefused(tuple(found))
    stored = {**plain, **{name: text for name, text in pem.items() if name != "client_key"}}
    if headers is not None:
        sealed = authorization.seal_headers(row.endpoint_id, headers)
        stored |= {"secret_headers": list(headers), "secret_headers_sealed": sealed}
    if "auth" in given:
        shown, sealed = authorization.seal_auth(row.endpoint_id, whole_auth) if whole_auth else (None, "")
        stored |= {"auth": shown, "auth_sealed": sealed}
    if "client_key" in pem:
        stored["client_key_sealed"] = authorization.seal_key(row.endpoint_id, pem["client_key"])
    return stored


def _told(field: str, rule: Any, value: Any) -> list[Problem]:
    try:
        rule(value)
    except RuleBroken as broken:
        return [Problem(field, str(broken))]
    return []


def _secret_headers(row: Endpoint, given: Mapping[str, Any], found: list[Problem]) -> dict[str, str] | None:
    """All secret headers after the change; None when it leaves them as they are."""
    if "secret_headers" not in given:
        return None
    changed: Mapping[str, str | None] | None = given["secret_headers"]
    if changed is None:
        return {}
    kept: dict[str, str] = {}
    named = {name.lower() for name in changed}
    if set(map(str.lower, row.secret_headers)) - named:
        try:
            kept = {name: text for name, text in authorization.secret_headers(row) if name.lower() not in named}
        except SealBroken:
            found.append(Problem("secret_headers", "those that stay cannot be opened here: give all of them, or null"))
    wanted = kept | {name: text for name, text in changed.items() if text is not None}
    found += _told("secret_headers", columns.headers, wanted)
    return wanted


def _auth(row: Endpoint, given: Mapping[str, Any], found: list[Problem]) -> dict[str, Any] | None:
    """The whole `auth` after the change, its secret among it; None for none, or when a rule is broken."""
    wanted = given.get("auth")
    if wanted is None:
        return None
    broken = auth.problems(wanted, row.auth)
    found += broken
    if broken:
        return None
    if not auth.kept(wanted, row.auth):
        return dict(wanted)
    try:
        return {**wanted, auth.SECRET[wanted["kind"]]: authorization.secret_of(row)}
    except SealBroken:
        found.append(Problem(f"auth.{auth.SECRET[wanted['kind']]}", "cannot be opened here: give it again"))
        return None


def _pem(row: Endpoint, given: Mapping[str, Any], found: list[Problem]) -> dict[str, str]:
    """Certificates and key as they are to be stored, those that are given."""
    rules = {
        "client_certificate": certificates.client_certificate,
        "client_key": certificates.client_key,
        "ca_certificates": certificates.ca_certificates,
    }
    if "client_certificate" in given and not given["client_certificate"]:
        given = {"client_key": None, **given}  # nobody else's use for its key
    pem: dict[str, str] = {}
    for name, rule in rules.items():
        if name not in given:
            continue
        try:
            pem[name] = rule(given[name]) if given[name] else ""
        except RuleBroken as broken:
            found.append(Problem(name, str(broken)))
            pem[name] = "?"  # given, and told of already
    certificate = pem.get("client_certificate", row.client_certificate)
    if "?" in pem.values() or not certificate or not ({"client_certificate", "client_key"} & pem.keys()):
        return pem
    try:
        key = pem["client_key"] if "client_key" in pem else authorization.client_key(row)
    except SealBroken:
        found.append(Problem("client_key", "cannot be opened here: give it again"))
        return pem
    if key and not certificates.belong_together(certificate, key):
        field = "client_key" if "client_key" in pem else "client_certificate"
        found.append(Problem(field, "certificate and key do not belong together"))
    return pem


def lacked(row: Endpoint, changed: Mapping[str, Any]) -> bool:
    """Whether a pause of the endpoint may have been for want of what `changed` sets, and not the receiver's wish.

    A row does not say why it is paused. One of which every secret opens has waited for none; but one that had an access
    token to fetch may have waited for that or for its receiver, and there is no telling: it is tried at once, and a
    receiver that still wants its pause says so again.
    """
    if "auth_sealed" in changed and (row.auth or {}).get("kind") == auth.OAUTH2:
        return True
    for column in _SEALED.keys() & changed.keys():
        if getattr(row, column):
            try:
                _SEALED[column](row)
            except SealBroken:
                return True
    return False
