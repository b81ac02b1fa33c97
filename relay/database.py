"""Django's connection to PostgreSQL: its parameters, and what every new connection is told first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

_LIBPQ_TO_DJANGO = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
_LOGIN = ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")

# A primary that goes silent (power cut, a lost network) sends no reset, and TCP alone would wait for a quarter of an
# hour or for ever, with leases running out meanwhile. With these a connection attempt ends after 5 s, an idle
# connection after 5 + 3 * 2 = 11 s, and one whose data is not acknowledged after 10 s.
NOTICE_SILENCE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def settings_for(parameters: Mapping[str, str], **options: str) -> dict[str, Any]:
    """An entry of DATABASES out of libpq's parameters. What they say themselves is not overridden.

    `options` are entries of Django's OPTIONS that libpq does not know.
    """
    over_tcp = not parameters.get("host", "").startswith(("/", "@"))  # else a socket of this machine
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{_LIBPQ_TO_DJANGO[key]: value for key, value in parameters.items() if key in _LIBPQ_TO_DJANGO},
        "OPTIONS": {
            "application_name": "relay",
            **(NOTICE_SILENCE if over_tcp else {}),
            **{key: value for key, value in parameters.items() if key not in _LIBPQ_TO_DJANGO},
            **options,
        },
        # A new connection per request costs PostgreSQL about 5 ms.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
    }


def away(error: OperationalError) -> str:
    """One sentence for a database that does not answer: which it is, and why. libpq's reason holds no password."""
    # libpq indents its guesses at the cause, which are questions; a name with several addresses has a line for each.
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("\t")]
    reason = "; ".join(line for line in lines if line).rstrip(".") or type(error).__name__
    if settings.RELAY_EMBEDDED:
        return (
            "The database does not answer: is `manage.py up` running, and are DATABASE_URL and RELAY_DATA_DIR the same "
            f"here as there? ({reason})"
        )
    return f"The database does not answer that DATABASE_URL names: {reason}."


def bound_idle_transactions(connection: BaseDatabaseWrapper, **signal: Any) -> None:
    """Have PostgreSQL end a transaction that does nothing for as long as a lease, and its connection with it.

    A receiver of `connection_created`. A process that stands still inside a transaction would otherwise keep its row
    locks, and so keep others from taking over what it no longer owns.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, false)",
                [str(settings.RELAY_LEASE_TTL_MS)],
            )


@contextmanager
def as_migrator() -> Iterator[None]:
    """Inside, this thread's connection is the migrator's, who has become the owner of the tables; then it is gone.

    Without a login of the migrator's (a database of one's own and no RELAY_MIGRATE_DATABASE_URL) nothing changes.
    """
    if settings.RELAY_MIGRATION_LOGIN is None:
        yield
        return
    with logged_in_as(settings.RELAY_MIGRATION_LOGIN):
        yield


@contextmanager
def logged_in_as(login: Mapping[str, Any]) -> Iterator[None]:
    """Inside, this thread's connection is another login's (an entry of DATABASES) in the same database."""
    connection = connections[DEFAULT_DB_ALIAS]
    usual = {key: connection.settings_dict[key] for key in _LOGIN}
    connection.close()
    connection.settings_dict.update({key: login.get(key, "") for key in _LOGIN})
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(usual)
