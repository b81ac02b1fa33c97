"""A dispatcher's own connection: it listens for new work, and holds the dispatcher's slot for as long as it lives."""

from __future__ import annotations

import logging
import select
import socket
import zlib
from types import TracebackType
from typing import Any, Self

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError

from deliveries.wake import CHANNEL

log = logging.getLogger("relay.dispatch")

SLOTS = 0x52656C79  # the first half of the advisory lock's key: "Rely"


def place_of(consumer: int) -> int:
    """The 24 bits by which a consumer's slots are told from those of others; the slot's number has the lower 7."""
    return zlib.crc32(f"{socket.gethostname()}:{consumer}".encode()) & 0x00FFFFFF


def taken_slots(consumer: int) -> int:
    """How many dispatchers of a consumer are at work."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = %s"
            " AND objid::bigint >> 7 = %s"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (SLOTS, place_of(consumer)),
        )
        (taken,) = cursor.fetchone() or (0,)
    return int(taken)


class Listener:
    """LISTENs on the channel, and takes one of the slots of a consumer by an advisory lock of its session.

    The lock goes with the connection, so the slot of a killed process is free at once. It is not a safety boundary: it
    only keeps a worker free for Huey's other tasks.
    """

    def __init__(self, consumer: int, slots: int) -> None:
        parameters = {
            name: value
            for name, value in connections[DEFAULT_DB_ALIAS].get_connection_params().items()
            if name not in ("cursor_factory", "context")
        }
        parameters["application_name"] = "relay-dispatcher"
        self._connection: psycopg.Connection[Any] = psycopg.connect(**parameters, autocommit=True)
        self._poll = select.poll()
        self._poll.register(self._connection.fileno(), select.POLLIN)
        self.slot: int | None = None
        place = place_of(consumer)
        for slot in range(slots):
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (SLOTS, place << 7 | slot)).fetchone()
            if row is not None and row[0]:
                self.slot = slot
                self._connection.execute(f"LISTEN {CHANNEL}")
                break

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def leave(self) -> None:
        """Give the slot back at once; closing alone would do it a moment later."""
        try:
            if not self._connection.closed:
                self._connection.execute("SELECT pg_advisory_unlock_all()")
        except psycopg.OperationalError:
            log.info("the listening connection was gone, and its slot with it")
        finally:
            self._connection.close()

    def fileno(self) -> int | None:
        """The descriptor that becomes readable when something is due; None when the connection is gone."""
        return None if self._connection.closed else self._connection.fileno()

    def drain(self) -> bool:
        """Read what has come; True when it was a call. `DatabaseError` when the connection is gone."""
        if not self._connection.closed and not self._poll.poll(0):
            return False
        try:
            return any(True for _ in self._connection.notifies(timeout=0))
        except psycopg.OperationalError as lost:
            self._connection.close()
            raise DatabaseError("the listening connection is gone") from lost
