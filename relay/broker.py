"""Huey's object: a doorbell kept in the same PostgreSQL, or in Redis when HUEY_URL says so.

A task is only ever a doorbell, and PostgreSQL is the record: results are off, and nothing is lost with the broker.
Nothing here connects before the first task is rung or awaited.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from huey import Huey, PostgresHuey, PriorityRedisHuey

from relay.env import BadVariable

READ_TIMEOUT = 1
"""Seconds that an idle worker waits in LISTEN before it looks at its stop flag again."""
REDIS_TIMEOUTS = {"socket_timeout": "5", "socket_connect_timeout": "5"}
"""Seconds after which a Redis that does not answer is given up. Above READ_TIMEOUT, for which an idle worker waits."""


def make(url: str) -> Huey:
    """Huey's object for HUEY_URL; an empty one means the database that Django uses.

    An object and not a dict of settings, since a dict would turn `immediate` on with DEBUG.
    """
    options: dict[str, Any] = {"name": "relay", "results": False, "immediate": False}
    if urlsplit(url).scheme in ("redis", "rediss"):
        if find_spec("redis") is None:
            raise BadVariable("HUEY_URL", "names Redis, but the Python package redis is not installed")
        return PriorityRedisHuey(**options, url=with_timeouts(url), read_timeout=READ_TIMEOUT)
    where: dict[str, Any] = {"dsn": url} if url else {"connection": connect}
    return PostgresHuey(**options, **where, create_tables=False, read_timeout=READ_TIMEOUT)


def with_timeouts(url: str) -> str:
    """A Redis URL with our timeouts in its query, where Huey takes them from; those that it names itself stay."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode({**REDIS_TIMEOUTS, **dict(parse_qsl(parts.query))})))


def connect() -> psycopg.Connection[Any]:
    """A new connection to Django's database, asked for at the last moment, so that tests reach their own."""
    from django.db import connections  # Settings make the broker, so Django is not ready when this file is read.

    parameters = connections["default"].get_connection_params()
    for django_only in ("cursor_factory", "context"):
        parameters.pop(django_only, None)
    return psycopg.connect(**{**parameters, "application_name": "relay-huey"})
