"""Huey's tasks: a few lines each. A task is only ever a doorbell; PostgreSQL is the record.

Dispatching is a chain of slices. A slice that ends rings for the next one; a worker that starts, an accepted event and
the sweep ring too, and a worker with nothing to do looks whether its consumer lacks a dispatcher, so the chain comes
back whatever broke it, or whichever other consumer took its task. A bell that finds every dispatcher of its consumer at
work waits a second and looks again, and while one waits no other is hung up: a burst of events is not a burst of tasks.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError
from huey import crontab
from huey.contrib.djhuey import HUEY, on_startup, periodic_task, task

from deliveries import asking, jobs, operational, reconcile
from deliveries.dispatch import slices
from deliveries.dispatch.listener import taken_slots
from deliveries.dispatch.stopping import STOP
from deliveries.steps import Step
from deliveries.wake import notify
from ledger.statements import in_transaction

log = logging.getLogger("relay.dispatch")

BELL = "relay.bell"
"""The key under which the broker remembers which bell hangs. A bell that finds another name there falls silent."""
ASK_BELL = "relay.bell.ask"
"""The same for questions to receivers. It hangs until the round is over, so that one is queued or at work."""
JOB_BELL = "relay.bell.jobs"
"""The same for jobs. It hangs until the round is over; one that stands still is followed by another."""
SECOND_LOOK_S = 1


def ring() -> None:
    """Something is due. Wakes the dispatchers that listen, and has one started where none does.

    Never fails its caller: what was accepted is committed, and a lost bell costs a sweep.
    """
    try:
        notify()
        bell = secrets.token_hex(8)
        if HUEY.storage.put_if_empty(BELL, bell.encode()):
            dispatch_slice(bell)
    except Exception:
        # The broker may be anything, and its errors too. The work is on record and the sweep will ring.
        log.warning("the bell could not be rung; the sweep will ring it", exc_info=True)


@task(priority=10)
def dispatch_slice(bell: str | None = None) -> None:
    """Dispatch for a while, and ring for the next slice. A task without a bell continues a chain."""
    followed = False

    def hand_over() -> None:
        nonlocal followed
        followed = _rung()

    try:
        _renew_connection()
        worked = slices.work(chores=_chores, begun=lambda: _take_down(bell), hand_over=hand_over)
    except Exception as error:
        # A connection that is cut between two of a slice's statements must not cost the chain.
        log.warning(
            "a slice broke off (%s); the next one follows", type(error).__name__, exc_info=not _of_database(error)
        )
        connections.close_all()
        time.sleep(SECOND_LOOK_S)
        worked = True
    if STOP.requested() or followed:
        return
    if worked:
        _follow_up()
    elif bell is None:
        bell = secrets.token_hex(8)
        if HUEY.storage.put_if_empty(BELL, bell.encode()):
            dispatch_slice.schedule((bell,), delay=SECOND_LOOK_S)
    elif HUEY.storage.peek_data(BELL) == bell.encode():
        dispatch_slice.schedule((bell,), delay=SECOND_LOOK_S)


def _take_down(bell: str | None) -> None:
    if bell is not None and HUEY.storage.peek_data(BELL) == bell.encode():
        HUEY.storage.pop_data(BELL)


@on_startup()
def begin() -> None:
    """A worker that starts, also one that replaces a killed one, begins a chain of its own."""
    _follow_up()


def fill_in() -> None:
    """For a worker with nothing to do: begin a slice where this consumer has fewer dispatchers than it should.

    The queue alone cannot see to that: consumers share it, and another one's worker may take the task that was meant
    for this one, find all its own dispatchers at work, and drop it.
    """
    try:
        _renew_connection()
        if taken_slots(STOP.consumer) < settings.RELAY_DISPATCHERS:
            HUEY.execute(dispatch_slice.s())
    except Exception as error:
        # Whatever it was, the worker lives on and looks again: an error here would be the end of its process.
        log.warning(
            "an idle worker could not look for work (%s)", type(error).__name__, exc_info=not _of_database(error)
        )
        connections.close_all()


@task()
def ask_receivers(bell: str) -> None:
    """Ask receivers what became of operations whose outcome is unknown: one bounded round."""
    if HUEY.storage.peek_data(ASK_BELL) != bell.encode():
        return
    try:
        _renew_connection()
        asking.ask_all(STOP.requested)
    except Exception as error:
        # What was answered is on record; the rest is still due, and the next sweep rings again.
        log.warning("a round of questions broke off (%s)", type(error).__name__, exc_info=not _of_database(error))
        connections.close_all()
    finally:
        if HUEY.storage.peek_data(ASK_BELL) == bell.encode():
            HUEY.storage.pop_data(ASK_BELL)


def ring_for_jobs() -> None:
    """A job was made. Never fails its caller: a lost bell costs a sweep."""
    _hang(JOB_BELL, work_jobs, "jobs")


@task()
def work_jobs(bell: str) -> None:
    """Make steps of jobs for a while, and ring again when something is left."""
    if HUEY.storage.peek_data(JOB_BELL) != bell.encode():
        return
    left = False
    try:
        _renew_connection()
        left = jobs.work(STOP.requested, _stepped)
    except Exception as error:
        # What was done is on record, and the rest is still due: the next sweep rings again.
        log.warning("a round of jobs broke off (%s)", type(error).__name__, exc_info=not _of_database(error))
        connections.close_all()
    finally:
        if HUEY.storage.peek_data(JOB_BELL) == bell.encode():
            HUEY.storage.pop_data(JOB_BELL)
    if left and not STOP.requested():
        ring_for_jobs()


def _stepped(step: Step) -> None:
    if step.changed:
        ring()


@periodic_task(crontab(minute="*"))
def sweep() -> None:
    """The reconciler's minute, for when no slice is there to do its chores; and a bell, whatever was lost."""
    _renew_connection()
    swept = reconcile.sweep()
    HUEY.storage.pop_data(BELL)  # its task may have been lost; if it was not, it falls silent
    HUEY.storage.pop_data(ASK_BELL)
    HUEY.storage.pop_data(JOB_BELL)
    ring()
    if swept.askable:
        _ring_to_ask()
    if jobs.due_for_ms() is not None:
        ring_for_jobs()
    in_transaction(lambda: operational.tell_long_unknown(settings.RELAY_UNKNOWN_TOLD_AFTER_S))


def _renew_connection() -> None:
    """Let go of a connection that broke since this process last used it: outside of requests Django never looks."""
    connections[DEFAULT_DB_ALIAS].close_if_unusable_or_obsolete()


def _of_database(error: Exception) -> bool:
    return isinstance(error, DatabaseError | psycopg.Error)


def _chores() -> None:
    swept = reconcile.sweep()
    if swept.overdue:
        notify()
    if swept.askable:
        _ring_to_ask()
    due = jobs.due_for_ms()
    if due is not None and due > jobs.STALLED_MS:
        HUEY.storage.pop_data(JOB_BELL)  # whoever was to answer it is gone
        ring_for_jobs()


def _ring_to_ask() -> None:
    """Have receivers asked, unless a round is queued or at work. A lost bell costs a minute."""
    _hang(ASK_BELL, ask_receivers, "questions")


def _hang(name: str, answer: Callable[[str], object], about: str) -> None:
    """Hang a bell up and queue who answers it, unless one hangs."""
    try:
        bell = secrets.token_hex(8)
        if HUEY.storage.put_if_empty(name, bell.encode()):
            answer(bell)
    except Exception as error:  # noqa: BLE001 (each broker raises errors of its own)
        log.warning("the bell for %s could not be rung (%s); the next sweep rings again", about, type(error).__name__)


def _rung() -> bool:
    """Ring for the next slice; False when the broker did not take it."""
    try:
        dispatch_slice()
    except Exception as error:  # noqa: BLE001 (each broker raises errors of its own)
        log.warning("the next slice could not be rung for (%s); trying again", type(error).__name__)
        return False
    return True


def _follow_up() -> None:
    """Ring for the next slice, until the broker has taken it: with the database away it may need some patience."""
    while not STOP.requested() and not _rung():
        time.sleep(SECOND_LOOK_S)
