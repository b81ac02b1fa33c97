"""The web server: Granian, several processes of a few threads each, in front of Django's WSGI application.

SIGTERM and SIGINT end it alike: it stops accepting, answers what it has begun, and goes.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from django.conf import settings
from granian import Granian
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from relay.processes import end_with_parent

APPLICATION = "relay.wsgi:application"
DRAIN_SECONDS = 20
HEADER_SECONDS = 10


class PortTaken(RuntimeError):
    """Somebody else listens there already."""


def address() -> str:
    """Where a browser on this machine finds us, without a slash at the end."""
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    host = anywhere.get(settings.RELAY_HOST, settings.RELAY_HOST)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.RELAY_PORT}"


def check_port() -> None:
    """Raise `PortTaken` when we could not listen. Granian shares its port with whoever else allows that."""
    host, port = settings.RELAY_HOST, settings.RELAY_PORT
    try:
        kind, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as refused:
        raise PortTaken(
            f"RELAY_HOST and RELAY_PORT say to listen on {host} port {port}, which is not possible: "
            f"{refused.strerror}. Choose another port with RELAY_PORT, or stop what uses this one."
        ) from refused


def serve() -> None:
    """Serve until a signal says to stop. Call it from the main thread, with Django set up."""
    Granian(
        APPLICATION,
        address=settings.RELAY_HOST,
        port=settings.RELAY_PORT,
        interface=Interfaces.WSGI,
        workers=settings.RELAY_WEB_PROCESSES,
        blocking_threads=settings.RELAY_WEB_THREADS,
        websockets=False,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=DRAIN_SECONDS,
        log_level=LogLevels.warning,
        log_dictconfig=_logging(),
    ).serve(target_loader=load, wrap_loader=False)


def load() -> Callable[..., Any]:
    """Granian calls this in each of its workers.

    A worker that gets the terminal's signal and its parent's at the same moment may never end, so it leaves the
    group that a terminal signals; its parent is told, and passes it on. Until Granian sets the worker's own handlers,
    those of the parent are inherited and would swallow the order to stop: with the default one it is obeyed at once.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGTERM)
    from relay.wsgi import application  # Connections and locks of the application are made in the worker.

    return application


def _logging() -> dict[str, Any]:
    """Granian's lines in our form, through our handler. It sets the levels itself."""
    ours: dict[str, Any] = {key: settings.LOGGING[key] for key in ("version", "formatters", "handlers")}
    loggers = {
        name: {"handlers": ["stderr"], "level": "WARNING", "propagate": False}
        for name in ("_granian", "granian.access")
    }
    return {**ours, "disable_existing_loggers": False, "loggers": loggers}
