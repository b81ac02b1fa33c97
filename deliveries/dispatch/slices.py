"""A slice: a bounded stretch of an engine's work in one Huey task, with its slot, its listener and its session."""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable

import psycopg
from django.conf import settings

from deliveries.dispatch import owner
from deliveries.dispatch.claiming import Walk
from deliveries.dispatch.engine import Engine
from deliveries.dispatch.limits import Limits
from deliveries.dispatch.listener import Listener
from deliveries.dispatch.stopping import STOP
from deliveries.egress import EgressPolicy
from deliveries.transport.base import Transport
from ledger.statements import session

log = logging.getLogger("relay.dispatch")

SECONDS = 30.0
"""How long a slice lasts."""
CONNECT_PAUSE_S = 0.5
DESCRIPTORS = 8_192
"""For the connections of what is in flight, those kept for later, and the rest of the process."""

PLANS = dict.fromkeys(
    ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "jit"), "off"
)
"""A queue's statistics are always wrong: it is empty one minute and full the next. Its statements are written for
nested loops over indexes, and the planner is kept to them."""

_transports: dict[int, Transport] = {}


def _transport() -> Transport:
    """This process's transport, kept between slices for its connections. One is never carried across a fork."""
    pid = os.getpid()
    if pid not in _transports:
        _transports.clear()
        _transports[pid] = _made(EgressPolicy.from_settings())
    return _transports[pid]


def _made(policy: EgressPolicy) -> Transport:
    """A transport of the kind that RELAY_TRANSPORT names. Only its own library has to be there."""
    _enough_descriptors()
    if settings.RELAY_TRANSPORT == "requests":
        from deliveries.transport.requests import RequestsTransport

        return RequestsTransport(policy)
    from deliveries.transport.curl import CurlTransport

    return CurlTransport(policy)


def _enough_descriptors() -> None:
    """Let this process have as many connections as a dispatcher may hold: many systems begin with 1,024 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS:
        if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.warning("this process may open %d files, a dispatcher may want %d; raise ulimit -n", hard, DESCRIPTORS)


def work(
    *,
    chores: Callable[[], None],
    begun: Callable[[], None],
    hand_over: Callable[[], None],
    seconds: float = SECONDS,
) -> bool:
    """Dispatch for `seconds`, or until told to stop. False at once when this consumer's dispatchers are all at work.

    `begun` is called once a slot is taken; `chores` about every RELAY_SWEEP_MS, between sends; `hand_over` when the
    slot is free again and what is in flight is still waited for.
    """
    listener = _listen()
    if listener is None:
        return True
    with listener:
        if listener.slot is None:
            return False
        slot = listener.slot
        begun()
        engine = Engine(
            owner=owner.current(),
            transport=_transport(),
            limits=Limits.from_settings(),
            walk=Walk(number=slot, dispatchers=settings.RELAY_DISPATCHERS),
            wake=listener.fileno,
        )
        next_chores = 0.0

        def tick() -> bool:
            nonlocal next_chores
            now = time.monotonic()
            if now >= next_chores:
                next_chores = now + settings.RELAY_SWEEP_MS / 1000
                chores()
            return listener.drain()

        def stopping() -> bool:
            return STOP.requested() or listener.fileno() is None

        def yield_slot() -> None:
            listener.leave()
            if not STOP.requested():
                hand_over()

        lease = f"{settings.RELAY_LEASE_TTL_MS}ms"
        # A statement that waits for longer than a lease waits for somebody who stands still.
        try:
            with session(**PLANS, statement_timeout=lease):
                engine.run(
                    until=time.monotonic() + seconds,
                    stopping=stopping,
                    orphaned=STOP.orphaned,
                    tick=tick,
                    hand_over=yield_slot,
                )
        except BaseException:
            owner.end()
            raise
        if engine.leaves_claims:
            owner.end()
        if engine.settled:
            log.info("slice %d settled %d deliveries", slot, engine.settled)
    return True


def _listen() -> Listener | None:
    """The listener, as soon as the database answers; None when told to stop before it does."""
    while not STOP.requested():
        try:
            return Listener(STOP.consumer, settings.RELAY_DISPATCHERS)
        except psycopg.OperationalError as error:
            log.warning("the database does not answer (%s); trying again", type(error).__name__)
            time.sleep(CONNECT_PAUSE_S)
    return None
