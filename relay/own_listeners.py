"""Where Relay's own parts listen: addresses that no endpoint may lead to, whatever the environment allows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from deliveries.addresses import Address

_POSTGRESQL = "PostgreSQL, which holds Relay's record,"
_REDIS_PORT = "6379"
_POSTGRESQL_PORT = "5432"


def listeners(
    *, web_port: int, databases: Sequence[Mapping[str, str]], huey_url: str
) -> dict[tuple[Address | None, int], str]:
    """(address, port) and what listens there; None for every address of this machine.

    `databases` are libpq's parameters; the embedded one is not among them: it listens on a Unix socket only.
    Limit: a host that is given by name is known as ours where it is this machine; elsewhere only RELAY_EGRESS_DENY can
    name it.
    """
    found: dict[tuple[Address | None, int], str] = {}
    for parameters in databases:
        for host, port in _servers(parameters):
            _add(found, host, port, _POSTGRESQL)
    broker = urlsplit(huey_url)
    if broker.scheme:
        redis = broker.scheme in ("redis", "rediss")
        port_text = broker.netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
        what = "Redis, which rings for Relay's workers," if redis else _POSTGRESQL
        _add(found, broker.hostname or "", port_text or (_REDIS_PORT if redis else _POSTGRESQL_PORT), what)
    _add(found, "", str(web_port), "Relay itself")
    return found


def _servers(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each host with its port; libpq takes several, with commas between, and one port for all or one for each."""
    hosts = (parameters.get("hostaddr") or parameters.get("host") or "").split(",")
    ports = (parameters.get("port") or os.environ.get("PGPORT") or _POSTGRESQL_PORT).split(",")
    for at, host in enumerate(hosts):
        yield host, ports[min(at, len(ports) - 1)] or _POSTGRESQL_PORT


def _add(found: dict[tuple[Address | None, int], str], host: str, port_text: str, what: str) -> None:
    if not re.fullmatch(r"[0-9]{1,5}", port_text):
        return  # nothing can listen there; whoever connects says so
    port = int(port_text)
    found[None, port] = what
    try:
        found[ip_address(host.strip("[]")), port] = what
    except ValueError:
        return  # a name, or the folder of a Unix socket: whoever listens there may listen on TCP too
