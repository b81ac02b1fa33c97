"""Django's connection to PostgreSQL: its parameters, and what every new connection is told first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

_LIBPQ_TO_DJANGO = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}

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


def settings_for(parameters: Mapping[str, str]) -> dict[str, Any]:
    """An entry of DATABASES out of libpq's parameters. What they say themselves is not overridden."""
    over_tcp = not parameters.get("host", "").startswith(("/", "@"))  # else a socket of this machine
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{_LIBPQ_TO_DJANGO[key]: value for key, value in parameters.items() if key in _LIBPQ_TO_DJANGO},
        "OPTIONS": {
            "application_name": "relay",
            **(NOTICE_SILENCE if over_tcp else {}),
            **{key: value for key, value in parameters.items() if key not in _LIBPQ_TO_DJANGO},
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
