"""The dispatcher: claim a batch, send it, renew what is held, settle what was answered; the four overlap.

One engine lives in one worker process and works in slices, so that Huey keeps supervision and shutdown. No transaction
and no lock is held while HTTP is in flight: every database call here is one short transaction.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError

from deliveries import failpoints
from deliveries.dispatch import claiming, settling, tokens
from deliveries.dispatch.attempts import Report, already_written
from deliveries.dispatch.claiming import Delivery, Found, Walk
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.sending import Awaited, GivenBack, prepared
from deliveries.failpoints import Point
from deliveries.health import Watch
from deliveries.timing import SETTLE_BUDGET_MS
from deliveries.transport.base import Outcome, Transport
from ledger.managers import lease, operation
from ledger.managers.operation import Claimed
from ledger.outcome import Applied
from ledger.statements import sqlstate

log = logging.getLogger("relay.dispatch")

IDLE_POLL_S = 0.5
"""How long an idle dispatcher waits for a call before it looks by itself: retries come due without one."""
BUSY_POLL_S = 0.05
PAUSES = {Found.NOTHING: IDLE_POLL_S, Found.BUSY: BUSY_POLL_S}
SETTLE_AFTER_S = 0.005
"""How long an answer waits for company before it is settled."""
SLOW_AFTER_S = 0.25
"""A delivery that is held for longer waits for a slow receiver, and no longer keeps others from being claimed."""
DATABASE_PAUSE_S = 0.2
NOT_SERVED = frozenset({"42883", "42501"})
"""No such function, no such right: another version has migrated the database, and nothing can be written any more."""


class Engine:
    """Moves deliveries for one owner. `wake` gives the descriptor that becomes readable when something is due."""

    def __init__(
        self, *, owner: str, transport: Transport, limits: Limits, walk: Walk, wake: Callable[[], int | None]
    ) -> None:
        self.owner = owner
        self.transport = transport
        self.limits = limits
        self.walk = walk
        self.wake = wake
        self.held: dict[int, Delivery] = {}  # everything claimed and not yet settled
        self.ready: deque[Delivery] = deque()  # claimed, not yet sent
        self.reports: list[Report] = []  # answered, not yet settled
        self.settled = 0
        self.watch = Watch()
        self._most = min(limits.held, transport.most)
        self._recent: deque[tuple[float, Delivery]] = deque()  # claimed a moment ago, in that order
        self._fresh: dict[int, Delivery] = {}  # those of them that are still held
        self._oldest_report = 0.0
        self._unconfirmed = False  # a renewal was asked for, and its answer never came
        self._unread = False  # so was a claim or a settle: what became of it must be read back
        self._away = False  # the database did not answer the last time
        self._given_up: set[int] = set()  # sent, not to be settled by us, and perhaps still claimed in our name
        self._awaiting_token = False
        self._stopping: Callable[[], bool] = lambda: False
        self._look_at = 0.0  # when to look for due work again
        self._renew_at = time.monotonic() + limits.heartbeat_ms / 1000

    # --- the four moves ------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Claim ahead of need: when less than half a window of fresh work is at hand."""
        now = time.monotonic()
        room = self._room(now)
        if room < self.limits.in_flight // 2 or now < self._look_at:
            return
        failpoints.reach(Point.BEFORE_CLAIM)
        self._unread = True
        deliveries, found = claiming.claim(
            self.walk, owner=self.owner, batch=min(self.limits.batch, room), ttl_ms=self.limits.ttl_ms
        )
        self._unread = False
        if deliveries:
            failpoints.reach(Point.AFTER_CLAIM)
        now = time.monotonic()
        for delivery in deliveries:
            self.held[delivery.key] = self._fresh[delivery.key] = delivery
            self._recent.append((now, delivery))
            self.ready.append(delivery)
        if found in PAUSES:
            self._look_at = now + PAUSES[found]
        elif found is Found.PACED:
            self._look_at = now + min(max(self.walk.token_in_s, BUSY_POLL_S), IDLE_POLL_S)

    def _room(self, now: float) -> int:
        """How much more may be claimed: fresh work is bounded by one window, and everything by another."""
        while self._recent and self._recent[0][0] <= now - SLOW_AFTER_S:
            _, delivery = self._recent.popleft()
            if self._fresh.get(delivery.key) is delivery:
                del self._fresh[delivery.key]
        return min(self.limits.in_flight - len(self._fresh), self._most - len(self.held))

    def send(self) -> None:
        """Send what is ready and whose lease outlives the send; the rest waits for a renewal or is given back.

        While a renewal is unconfirmed nothing new is sent. What is in flight goes on: it was begun under a lease that
        is confirmed to outlive its deadline.
        """
        if self._unconfirmed:
            return
        waiting: deque[Delivery] = deque()
        self._awaiting_token = False
        while self.ready:
            delivery = self.ready.popleft()
            now = time.monotonic()
            timeout_ms = self.limits.deadline_ms(delivery.endpoint.timeout_ms)
            if delivery.expires_at - now < (timeout_ms + SETTLE_BUDGET_MS) / 1000:
                waiting.append(delivery)
                continue
            request = prepared(delivery, now=now, timeout_ms=timeout_ms)
            if isinstance(request, Awaited):
                waiting.append(delivery)
                self._awaiting_token = True
                continue
            if isinstance(request, GivenBack):
                self._report(delivery, None, request.pause_s)
                continue
            if isinstance(request, Outcome):
                self._report(delivery, request)
                continue
            delivery.sent_at = now
            failpoints.reach(Point.BEFORE_SEND)
            self.transport.submit(request)
        self.ready = waiting

    def renew(self) -> None:
        """One statement per heartbeat for everything held for longer than half a heartbeat.

        What is not confirmed is abandoned: sends are stopped, and nothing is written about them, because somebody else
        may own them now. What a stopped send had learned is still offered to `settle`, which refuses and records it.
        """
        now = time.monotonic()
        if now < self._renew_at:
            return
        self._renew_at = now + self.limits.heartbeat_ms / 1000
        young = now if self._unconfirmed else now - self.limits.heartbeat_ms / 2000
        old = {d.claim.run_id: d for d in self.held.values() if d.claimed_at <= young}
        if not old:
            self._unconfirmed = False
            return
        self._unconfirmed = True
        answers = lease.renew(
            [(run_id, d.claim.epoch) for run_id, d in old.items()], owner=self.owner, ttl_ms=self.limits.ttl_ms
        )
        self._unconfirmed = False
        lost = []
        for run_id, delivery in old.items():
            if isinstance(answers.get(run_id), Applied):
                delivery.expires_at = now + self.limits.ttl_ms / 1000
            else:
                lost.append(delivery)
        if lost:
            log.warning("lost %d leases at a heartbeat; their sends are stopped", len(lost))
            self._abandon(lost)

    def settle(self, *, now_or_never: bool = False) -> None:
        """Settle answers: a full batch, or what has waited long enough for company."""
        while self.reports:
            waited = time.monotonic() - self._oldest_report
            if len(self.reports) < self.limits.batch and waited < SETTLE_AFTER_S and not now_or_never:
                return
            batch, rest = self.reports[: self.limits.batch], self.reports[self.limits.batch :]
            failpoints.reach(Point.BEFORE_SETTLE)
            self._unread = True
            self._given_up |= settling.settle_each(batch, owner=self.owner, watch=self.watch)
            self._unread = False
            failpoints.reach(Point.AFTER_SETTLE)
            # Only now: had the write failed, the same reports would be offered again while their leases hold.
            self.reports = rest
            self.settled += len(batch)
            for report in batch:
                self._let_go(report.delivery)
            self._look_at = 0.0  # the windows of their endpoints have room again

    def read_back(self) -> None:
        """Learn what became of a claim or a settle whose COMMIT was not answered, before anything else is begun.

        Claims that were made, and of which this engine never heard, are given back: nothing of them was sent. Reports
        that were settled are let go.
        """
        if not self._unread:
            return
        written = already_written(self.reports, owner=self.owner) if self.reports else set()
        done = [one for one in self.reports if (one.delivery.key, one.delivery.claim.attempts) in written]
        strays = [claim for claim in operation.held_by(self.owner) if not self._knows(claim)]
        if strays:
            settling.give_back(strays, owner=self.owner)
            log.warning("%d claims whose answer was lost are given back; nothing of them was sent", len(strays))
        self.reports = [report for report in self.reports if report not in done]
        for report in done:
            self._let_go(report.delivery)
        self._unread = False

    @property
    def leaves_claims(self) -> bool:
        """Whether something may still be claimed in our name that only the reconciler should find: it may be sent."""
        return bool(self.held or self._given_up or self._unread)

    def _knows(self, claim: Claimed) -> bool:
        return claim.operation_key in self.held or claim.operation_key in self._given_up

    def _let_go(self, delivery: Delivery) -> None:
        if self.held.get(delivery.key) is delivery:
            del self.held[delivery.key]
        if self._fresh.get(delivery.key) is delivery:
            del self._fresh[delivery.key]

    # --- a slice -------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        until: float,
        stopping: Callable[[], bool],
        orphaned: Callable[[], bool],
        tick: Callable[[], bool],
        hand_over: Callable[[], None],
    ) -> None:
        """Work until the monotonic time `until`, or until `stopping`; then give back what was not sent and drain.

        `tick` is called once a turn, does the caller's own chores, and answers whether something new may be due.
        `hand_over` is called before the drain, which lasts as long as the slowest receiver: others claim meanwhile.
        A process that is `orphaned` waits for no database: whoever ended its parent has most likely ended that too.
        """
        self._stopping = stopping
        try:
            while time.monotonic() < until and not stopping():
                self._turn(claiming=True, tick=tick)
            hand_over()
            self.drain(orphaned)
        finally:
            # After an error nobody would take these outcomes: the reconciler will call them unknown.
            self.transport.abort(list(self.held))

    def drain(self, orphaned: Callable[[], bool] = lambda: False) -> None:
        """Give back what was not sent, wait for what is in flight to its deadline, and settle all of it.

        Also what was claimed in the last turn and never heard of: a COMMIT whose answer was lost is read back first.
        """
        self._give_back()
        while self.held or self._unread:
            self._turn(claiming=False, tick=lambda: False)
            if self._away and orphaned():
                log.warning("orphaned, without a database: %d deliveries are left to the reconciler", len(self.held))
                return
        try:
            self.watch.write(last=True)
        except DatabaseError as error:
            log.info("news of endpoints is lost (%s); there will be more", type(error).__name__)

    def _turn(self, *, claiming: bool, tick: Callable[[], bool]) -> None:
        try:
            self.read_back()
            # Settled before more is claimed: what is claimed anew must not meet an old report of itself.
            self.settle(now_or_never=self.transport.in_flight == 0)
            self.watch.write()
            if tick():
                self._look_at = 0.0
            if claiming:
                self.claim()
                if self._stopping():
                    return  # it is given back
            self.send()
            self._serve(self._patience(), self.wake() if claiming else None)
            self.renew()
            if not claiming:
                self._give_back()
            self._away = False
        except DatabaseError as error:
            self._without_database(error)

    def _serve(self, seconds: float, wake: int | None) -> None:
        """Drive the wire for up to `seconds`, and take what it has to say."""
        for outcome in self.transport.poll(seconds, wake):
            if outcome.evidence.request_complete:
                failpoints.reach(Point.AFTER_SEND)
            delivery = self.held.get(outcome.key)
            if delivery is not None:
                self._report(delivery, outcome)

    def _patience(self) -> float:
        """How long to wait for the wire, in seconds: not at all while there is something else to do."""
        now = time.monotonic()
        if self.reports:
            return max(0.0, min(SETTLE_AFTER_S - (now - self._oldest_report), SETTLE_AFTER_S))
        until = self._renew_at if self.held else now + IDLE_POLL_S
        if self._room(now) >= self.limits.in_flight // 2:
            until = min(until, self._look_at)
        elif self._recent:
            until = min(until, self._recent[0][0] + SLOW_AFTER_S)
        return max(0.0, min(until - now, tokens.POLL_S if self._awaiting_token else IDLE_POLL_S))

    # --- losing things -------------------------------------------------------------------------------------------

    def _report(self, delivery: Delivery, outcome: Outcome | None, pause_s: float = 0.0) -> None:
        if not self.reports:
            self._oldest_report = time.monotonic()
        self.reports.append(Report(delivery, outcome, time.monotonic(), pause_s))

    def _give_back(self) -> None:
        while self.ready:
            self._report(self.ready.popleft(), None)

    def _abandon(self, lost: list[Delivery]) -> None:
        keys = {delivery.key for delivery in lost}
        self.ready = deque(delivery for delivery in self.ready if delivery.key not in keys)
        stopped = {outcome.key: outcome for outcome in self.transport.abort(keys)}
        reported = {report.delivery.key for report in self.reports}
        for delivery in lost:
            if delivery.key in stopped:
                self._report(delivery, stopped[delivery.key])
            elif delivery.key not in reported:
                self._let_go(delivery)

    def _without_database(self, error: DatabaseError) -> None:
        """A statement failed, or its answer never came. What could not be confirmed is kept until its lease runs out.

        Then it is stopped: the reconciler will have found it, and calls it unknown. What was answered is kept for as
        long as the database is away: `settle` will refuse it, and record it as evidence.
        """
        if sqlstate(error) in NOT_SERVED:
            log.error(
                "the database does not serve this version of Relay any more (%s); start the version that migrated it. "
                "%d deliveries are left to the reconciler", type(error.__cause__).__name__, len(self.held),
            )  # fmt: skip
            raise error
        log.warning("a statement failed (%s); %d deliveries held", type(error).__name__, len(self.held))
        self._away = True
        connections[DEFAULT_DB_ALIAS].close()
        now = time.monotonic()
        if self._unconfirmed:
            self._renew_at = now  # confirm it before anything else
        answered = {report.delivery.key for report in self.reports}
        gone = [one for one in self.held.values() if one.expires_at <= now and one.key not in answered]
        if gone:
            self._abandon(gone)
            log.error(
                "%d leases ran out while the database was away; their outcome is left to the reconciler", len(gone)
            )
        self._look_at = now + DATABASE_PAUSE_S
        # The wire is still served while the database is away, but not in a busy loop.
        self._serve(DATABASE_PAUSE_S, None)
