"""Access tokens of endpoints that want OAuth 2 client credentials (RFC 6749, 4.4), without holding up the dispatcher.

A token is fetched by a thread of a bounded pool and kept in this process until shortly before it ends; for one endpoint
at most one fetch is under way. Every rule of egress holds for the token server, at the socket too.

While a token is on its way its deliveries wait. When that takes long, or the token server is down, they are given back:
no attempt is spent, and the endpoint is paused for a moment. When it has been down for `GIVE_UP_S`, and at once when it
refuses this client, they are reported as not sent, with a sentence that says why.

Nothing here logs, raises or shows a token, a client's secret or a byte of a token server's body.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode
from uuid import UUID

from deliveries import authorization, ids
from deliveries.dispatch.claiming import Delivery
from deliveries.egress import EgressPolicy
from deliveries.models import Attempt, Endpoint
from deliveries.outcomes import retry_after_seconds
from deliveries.rules import auth as kinds
from deliveries.transport import single
from deliveries.transport.base import Outcome

log = logging.getLogger("relay.dispatch")

THREADS = 16
TIMEOUT_MS, CONNECT_TIMEOUT_MS = 10_000, 5_000
PATIENCE_S = 2.0
"""How long a delivery waits in the dispatcher's hands for a token that is being fetched."""
POLL_S = 0.02
"""How soon the dispatcher looks again for a token that it waits for."""
BACKOFF_S = (5.0, 10.0, 20.0, 30.0)
"""For how long a failure is remembered before the token server is asked again."""
LONGEST_QUIET_S = 300.0
GIVE_UP_S = 60.0
TOKEN_LENGTH = 8192
UNSTATED_LIFE_S, LONGEST_LIFE_S = 300.0, 86_400.0
MARGIN_S = 60.0
"""A token is used until so long before its end, or a fifth of a short life."""
RENEW_S = 30.0
"""How often, at most, a token is given up because a receiver refused it."""
REMEMBERED = 4096
UNAUTHORIZED = 401

_PASSING = frozenset({408, 425, 429})
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")


class TokenRefused(Exception):
    """There is no token, and waiting for one was no use: the message is a sentence for the attempt's record."""


class TokenAwaited(Exception):
    """The token is being fetched: look again soon."""


class TokenDelayed(Exception):
    """The token will take a while: give the delivery back, and look again in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no access token yet; to be looked for again in {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    text: str
    life_s: float


@dataclass(frozen=True, slots=True)
class _Trouble:
    sentence: str
    final: bool
    """It is this client that is refused; asking again does not help soon."""
    wait_s: float = 0.0


@dataclass(slots=True, repr=False)
class _Entry:
    """What is known of one endpoint's token. Times are monotonic seconds."""

    settings: tuple[str, str]
    token: str = ""
    fetched_at: float = 0.0
    refresh_at: float = 0.0
    use_until: float = 0.0
    fetching_since: float | None = None
    failing_since: float | None = None
    failures: int = 0
    quiet_until: float = 0.0
    forget_from: float = 0.0
    trouble: _Trouble | None = None


@dataclass(frozen=True, slots=True, repr=False)
class _Job:
    entry: _Entry
    name: str
    auth: dict[str, Any]
    secret: str


@dataclass(slots=True, repr=False)
class Tokens:
    """The tokens of one process."""

    entries: OrderedDict[UUID, _Entry] = field(default_factory=OrderedDict)
    jobs: deque[_Job] = field(default_factory=deque)
    threads: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ready(self, endpoint: Endpoint) -> str | None:
        """The token to send with; None while it is being fetched. It never waits.

        `TokenDelayed` when it takes long, `TokenRefused` when there is none, `SealBroken` when the client's secret
        cannot be opened.
        """
        with self.lock:
            entry, now = self._entry(endpoint), time.monotonic()
            if entry.token and now < entry.use_until:
                if now >= entry.refresh_at and now >= entry.quiet_until:
                    self._begin(entry, endpoint, now)
                return entry.token
            if now >= entry.quiet_until:
                self._begin(entry, endpoint, now)
            if entry.fetching_since is not None and now - entry.fetching_since < PATIENCE_S:
                return None
            trouble, failing = entry.trouble, entry.failing_since
            if trouble is not None and failing is not None and (trouble.final or now - failing >= GIVE_UP_S):
                raise TokenRefused(f"No access token: {trouble.sentence}")
            raise TokenDelayed(max(entry.quiet_until - now, BACKOFF_S[0] if entry.fetching_since else 1.0))

    def forget(self, endpoint: Endpoint, used_at: float) -> bool:
        """Do not use again what was used at this moment, and tell whether the next request will carry another token.

        A token that came later stays. So does one that was used when another had been forgotten a moment before: a
        receiver that refuses every token must not have one fetched for each of its answers.
        """
        with self.lock:
            entry, now = self._entry(endpoint), time.monotonic()
            if entry.token and entry.fetched_at <= used_at:
                if now < entry.forget_from:
                    return False
                entry.token, entry.forget_from = "", now + RENEW_S
            return True

    def _entry(self, endpoint: Endpoint) -> _Entry:
        settings = (json.dumps(endpoint.auth, sort_keys=True), endpoint.auth_sealed)
        entry = self.entries.get(endpoint.endpoint_id)
        if entry is None or entry.settings != settings:
            entry = self.entries[endpoint.endpoint_id] = _Entry(settings)
        self.entries.move_to_end(endpoint.endpoint_id)
        while len(self.entries) > REMEMBERED:
            self.entries.popitem(last=False)
        return entry

    def _begin(self, entry: _Entry, endpoint: Endpoint, now: float) -> None:
        """Have the token fetched, unless that is under way."""
        if entry.fetching_since is not None:
            return
        secret = authorization.secret_of(endpoint)
        name = ids.render(ids.ENDPOINT, endpoint.endpoint_id)
        self.jobs.append(_Job(entry, name, dict(endpoint.auth or {}), secret))
        entry.fetching_since = now
        if self.threads < THREADS:
            self.threads += 1
            threading.Thread(target=self._work, name="relay-tokens", daemon=True).start()

    def _work(self) -> None:
        """One thread of the pool: it ends when there is nothing to fetch."""
        while True:
            with self.lock:
                if not self.jobs:
                    self.threads -= 1
                    return
                job = self.jobs.popleft()
            found: _Token | _Trouble
            try:
                found = ask(job.auth, job.secret)
            except Exception as error:  # noqa: BLE001 - a thread that ended here would leave its endpoint waiting for ever
                # Not its message: it may quote what was sent.
                log.error("fetching an access token for %s failed: %s", job.name, type(error).__name__)  # noqa: TRY400
                found = _Trouble("Asking the token server failed.", final=False)
            with self.lock:
                _learn(job, found)


def _learn(job: _Job, found: _Token | _Trouble) -> None:
    entry, now = job.entry, time.monotonic()
    entry.fetching_since = None
    if isinstance(found, _Token):
        margin = min(MARGIN_S, found.life_s / 5)
        entry.token, entry.fetched_at = found.text, now
        entry.use_until = now + found.life_s - margin
        entry.refresh_at = entry.use_until - margin
        entry.failing_since, entry.failures, entry.quiet_until, entry.trouble = None, 0, 0.0, None
        return
    wait = max(BACKOFF_S[min(entry.failures, len(BACKOFF_S) - 1)], min(found.wait_s, LONGEST_QUIET_S))
    entry.failures += 1
    entry.failing_since = now if entry.failing_since is None else entry.failing_since
    entry.quiet_until, entry.trouble = now + wait, found
    log.warning("no access token for %s: %s Asked again in %.0f s.", job.name, found.sentence, wait)


def ask(auth: dict[str, Any], secret: str) -> _Token | _Trouble:
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
        return _Trouble(f"The token server could not be asked. {answer.error}", final=False)
    if answer.status != 200:
        wait = retry_after_seconds(answer.headers) or 0.0
        final = 300 <= answer.status < 500 and answer.status not in _PASSING
        return _Trouble(f"The token server answered {answer.status}{_code(answer.body)}.", final, wait)
    if not answer.body_complete:
        return _Trouble("The token server's answer was cut short, or longer than 16 KiB.", final=False)
    return _read(answer.body)


def _read(body: bytes) -> _Token | _Trouble:
    """The token of a successful answer (RFC 6749, 5.1)."""
    said = _json(body)
    text, kind, life = said.get("access_token"), said.get("token_type", "bearer"), said.get("expires_in")
    if not isinstance(text, str) or not text:
        return _Trouble("The token server answered 200 without an access token.", final=True)
    if len(text) > TOKEN_LENGTH or not _VISIBLE.fullmatch(text):
        return _Trouble(
            f"The access token is longer than {TOKEN_LENGTH} characters, or not printable ASCII.", final=True
        )
    if str(kind).lower() != "bearer":
        return _Trouble("The access token is of a type other than bearer.", final=True)
    if isinstance(life, str) and life.isascii() and life.isdigit() and len(life) < 12:  # some servers quote it
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or life <= 0:
        life = UNSTATED_LIFE_S
    return _Token(text, min(float(life), LONGEST_LIFE_S))


def _code(body: bytes) -> str:
    """The error's code (RFC 6749, 5.2), when it looks like one."""
    code = _json(body).get("error")
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


_OURS = Tokens()
ready = _OURS.ready
forget = _OURS.forget


def to_repeat(told: Iterable[tuple[Delivery, Outcome | None]]) -> set[int]:
    """Of these, the deliveries that a receiver refused with 401 (RFC 6750, 3.1) under an access token of ours, by key.

    The next attempt follows at once with a new one; but once: where the attempt before
    ended in the same way, the new token was no better, and it goes by schedule.
    """
    refused = [
        delivery
        for delivery, outcome in told
        if outcome is not None and outcome.http_status == UNAUTHORIZED and wants_token(delivery.endpoint)
    ]
    if not refused:
        return set()
    renewed = [one for one in refused if one.sent_at is not None and forget(one.endpoint, one.sent_at)]
    before = set(
        Attempt.objects.filter(
            operation_key__in=[delivery.key for delivery in renewed], http_status=UNAUTHORIZED
        ).values_list("operation_key", "number")
    )
    return {one.key for one in renewed if (one.key, one.claim.attempts - 1) not in before}


def wants_token(endpoint: Endpoint) -> bool:
    """Whether its requests carry an access token that must be fetched."""
    return endpoint.auth is not None and endpoint.auth["kind"] == kinds.OAUTH2
