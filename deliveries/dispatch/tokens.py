"""Access tokens of endpoints that want OAuth 2 client credentials (RFC 6749, 4.4), without holding up the dispatcher.

A token is fetched by a thread of a bounded pool and kept in this process until shortly before it ends; for one endpoint
at most one fetch is under way, and at most one is begun in a second, whatever happens. Every rule of egress holds for
the token server, at the socket too.

While a token is on its way its deliveries wait. When that takes long, or the token server is down, they are given back:
no attempt is spent, and the endpoint is paused for a moment. What counts is how long they wait, not what the server
answers: a token that is over before it is used is as good as none. When the server has been down for `GIVE_UP_S`, and
at once when it refuses this client, they are reported as not sent, with a sentence that says why.

Nothing here logs, raises or shows a token, a client's secret or a byte of a token server's body.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from deliveries import authorization, ids
from deliveries.dispatch.claiming import Delivery
from deliveries.dispatch.token_server import Token, Trouble, ask
from deliveries.models import Attempt, Endpoint
from deliveries.rules import auth as kinds
from deliveries.transport.base import Outcome

log = logging.getLogger("relay.dispatch")

THREADS = 16
PATIENCE_S = 2.0
"""How long deliveries of one endpoint wait in the dispatcher's hands for a token, since the first that had none."""
POLL_S = 0.02
"""How soon the dispatcher looks again for a token that it waits for."""
BACKOFF_S = (5.0, 10.0, 20.0, 30.0)
"""For how long a failure is remembered before the token server is asked again."""
ASK_AGAIN_S = 1.0
"""How long after one request for a token the next may follow, for one endpoint."""
LONGEST_QUIET_S = 300.0
GIVE_UP_S = 60.0
MARGIN_S = 60.0
"""A token is used until so long before its end, or a fifth of a short life."""
LEAST_USE_S = 5.0
"""A token is used for so long, whatever its server says of its life."""
UNUSED_S = 30.0
"""For so long a token that deliveries waited for is kept for its first use, whatever its life: it came while they were
given back."""
RENEW_S = 30.0
"""How often, at most, a token is given up because a receiver refused it."""
REMEMBERED = 4096
UNAUTHORIZED = 401


class TokenRefused(Exception):
    """There is no token, and waiting for one was no use: the message is a sentence for the attempt's record."""


class TokenAwaited(Exception):
    """The token is being fetched: look again soon."""


class TokenDelayed(Exception):
    """The token will take a while: give the delivery back, and look again in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no access token yet; to be looked for again in {seconds:.0f} s")
        self.seconds = seconds


@dataclass(slots=True, repr=False)
class _Entry:
    """What is known of one endpoint's token. Times are monotonic seconds."""

    settings: tuple[str, str]
    token: str = ""
    fetched_at: float = 0.0
    refresh_at: float = 0.0
    use_until: float = 0.0
    used: bool = True
    needed_since: float | None = None
    """When a delivery first found no token, since the last was handed out or a fetch failed."""
    asked_at: float = -math.inf
    """When the last request for a token began, or was put in the queue to begin."""
    fetching_since: float | None = None
    failing_since: float | None = None
    failures: int = 0
    """Fetches in a row of which no token has been used."""
    quiet_until: float = 0.0
    forget_from: float = 0.0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, repr=False)
class _Job:
    endpoint_id: UUID
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
            if _usable(entry, now):
                if not entry.used:
                    entry.used, entry.failures, entry.quiet_until = True, 0, 0.0
                entry.needed_since = None
                if now >= entry.refresh_at:
                    self._begin(entry, endpoint, now)
                return entry.token
            self._begin(entry, endpoint, now)
            if entry.needed_since is None:
                entry.needed_since = now
            coming = entry.fetching_since is not None or now >= entry.quiet_until
            if coming and now - entry.needed_since < PATIENCE_S:
                return None
            trouble, failing = entry.trouble, entry.failing_since
            if trouble is not None and failing is not None and (trouble.final or now - failing >= GIVE_UP_S):
                raise TokenRefused(f"No access token: {trouble.sentence}")
            slow = entry.fetching_since is not None and now - entry.fetching_since >= ASK_AGAIN_S
            raise TokenDelayed(max(entry.quiet_until - now, BACKOFF_S[0] if slow else ASK_AGAIN_S))

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
        if entry is None:
            entry = self.entries[endpoint.endpoint_id] = _Entry(settings)
            self._make_room()
        elif entry.settings != settings:
            # Deliveries that were claimed before and after a change may wait side by side: what paces the requests and
            # ends the waiting is the endpoint's.
            entry = self.entries[endpoint.endpoint_id] = _Entry(
                settings, needed_since=entry.needed_since, asked_at=entry.asked_at
            )
        self.entries.move_to_end(endpoint.endpoint_id)
        return entry

    def _make_room(self) -> None:
        """Forget what was not looked at for longest; but not when a token was last asked for, while that counts."""
        while len(self.entries) > REMEMBERED:
            oldest = next(iter(self.entries.values()))
            if oldest.fetching_since is not None or time.monotonic() < oldest.asked_at + ASK_AGAIN_S:
                return
            self.entries.popitem(last=False)

    def _begin(self, entry: _Entry, endpoint: Endpoint, now: float) -> None:
        """Have the token fetched, unless that is under way, or too soon."""
        if entry.fetching_since is not None or now < max(entry.quiet_until, entry.asked_at + ASK_AGAIN_S):
            return
        secret = authorization.secret_of(endpoint)
        name = ids.render(ids.ENDPOINT, endpoint.endpoint_id)
        self.jobs.append(_Job(endpoint.endpoint_id, entry, name, dict(endpoint.auth or {}), secret))
        entry.fetching_since = entry.asked_at = now
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
                if self.entries.get(job.endpoint_id) is not job.entry:
                    continue  # its settings are others by now
                job.entry.asked_at = time.monotonic()
            found: Token | Trouble
            try:
                found = ask(job.auth, job.secret)
            except Exception as error:  # noqa: BLE001 - a thread that ended here would leave its endpoint waiting
                # Not its message: it may quote what was sent.
                log.error("fetching an access token for %s failed: %s", job.name, type(error).__name__)  # noqa: TRY400
                found = Trouble("Asking the token server failed.", final=False)
            with self.lock:
                _learn(job, found)


def _usable(entry: _Entry, now: float) -> bool:
    if not entry.token or now < entry.use_until:
        return bool(entry.token)
    return not entry.used and entry.needed_since is not None and now < entry.fetched_at + UNUSED_S


def _learn(job: _Job, found: Token | Trouble) -> None:
    entry, now = job.entry, time.monotonic()
    entry.fetching_since = None
    backoff = BACKOFF_S[min(entry.failures, len(BACKOFF_S) - 1)]
    entry.failures += 1
    if isinstance(found, Token):
        life = max(found.life_s, LEAST_USE_S)
        margin = min(MARGIN_S, life / 5)
        entry.token, entry.fetched_at, entry.used = found.text, now, False
        entry.use_until = now + max(life - margin, LEAST_USE_S)
        entry.refresh_at = entry.use_until - margin
        entry.failing_since, entry.trouble = None, None
        entry.quiet_until = now + backoff  # until it is used: then the fetch was of use
        return
    wait = max(backoff, min(found.wait_s, LONGEST_QUIET_S))
    entry.needed_since = None  # those that wait are told
    entry.failing_since = now if entry.failing_since is None else entry.failing_since
    entry.quiet_until, entry.trouble = now + wait, found
    log.warning("no access token for %s: %s Asked again in %.0f s.", job.name, found.sentence, wait)


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
