"""Scenes that are played in a process of their own: `python -m tests.egress.inside SCENE …` prints one line of JSON.

All but `watched` and `tls` expect to be in a network namespace, where they make every address this machine's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from deliveries.egress import EgressPolicy
from deliveries.transport import resolve
from tests.egress import urls
from tests.egress.senders import Sender, no_address
from tests.egress.slow_names import with_real_name_servers
from tests.egress.standin import Answering, StandIn
from tests.receiver import Receiver
from tests.transports import LOOPBACK, certificate

GUARDED = EgressPolicy()
UNGUARDED = EgressPolicy([ip_network("0.0.0.0/0"), ip_network("::/0")])
PORTS = (22, 25, 80, 443, 6379, 8080, 8443, 11211)
PUBLIC, PRIVATE = "93.184.216.34", "10.0.0.5"


def prepare() -> None:
    """Bring loopback up, and have the kernel take every address for this machine's."""
    for command in ("link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)


def hostile(kind: str) -> list[dict[str, Any]]:
    """Each URL of the file given to the transport, and who was called by then. The first of `calls` counts."""
    return _try_all(kind, GUARDED)


def unguarded(kind: str) -> list[dict[str, Any]]:
    """The same under a policy that permits everything: what the guard keeps away."""
    return _try_all(kind, UNGUARDED)


def _try_all(kind: str, policy: EgressPolicy) -> list[dict[str, Any]]:
    prepare()
    with StandIn(*PORTS) as stand_in:
        found = []
        for line in urls.read():
            before = len(stand_in.calls())
            sent = _send(kind, policy, line)
            found.append({"url": line.url, **sent, "calls": stand_in.calls()[before:]})
        return found


def watched(kind: str) -> list[dict[str, Any]]:
    """The same in the network of this machine, where every attempt to make a socket for IP is counted and fails."""
    attempts = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal attempts
        if event == "socket.__new__" and arguments[1] in (2, 10):
            attempts += 1
            raise PermissionError("no sockets in this scene")

    sys.addaudithook(watch)
    found = []
    for line in urls.read():
        attempts = 0
        sent = _send(kind, GUARDED, line)
        found.append({"url": line.url, **sent, "attempts": attempts})
    return found


def _send(kind: str, policy: EgressPolicy, line: urls.Line) -> dict[str, Any]:
    def look_up(host: str) -> tuple[str, ...]:
        return line.addresses or no_address(host)

    sender = Sender(kind, policy, look_up=look_up)
    try:
        sent = sender.send(line.url, timeout_ms=3000)
    finally:
        sender.close()
    return {"verdict": sent.verdict, "error": sent.error, "offered": sent.bytes_offered}


def tls(kind: str, folder: str) -> str:
    """One request over TLS in a process that has made none before; its verdict."""
    context, trusted = certificate(Path(folder), "hooks.customer.com")
    with Receiver(tls=context) as receiver:
        sender = Sender(kind, LOOPBACK, look_up=lambda _: ("127.0.0.1",), ca_file=trusted)
        sent = sender.send(f"https://hooks.customer.com:{receiver.port}/")
        sender.close()
        return sent.verdict


def rebinding(kind: str) -> dict[str, Any]:
    """A name that is public at first and private from then on, called until a request is refused, and once more.

    Answers are remembered for an instant only, so that the change comes while connections are open.
    """
    prepare()
    resolve.REMEMBER_S = 0.0
    asked = 0

    def look_up(host: str) -> tuple[str, ...]:
        nonlocal asked
        asked += 1
        return (PUBLIC,) if asked == 1 else (PRIVATE,)

    policy = EgressPolicy(allow_http=True)
    with Answering(80) as receiver:
        sender = Sender(kind, policy, look_up=look_up)
        sent = []
        for _ in range(200):
            sent.append(sender.send("http://rebind.attacker.net/"))
            if sent[-1].verdict == "not_sent":
                break
        sent.append(sender.send("http://rebind.attacker.net/"))
        sender.close()
        return {
            "verdicts": [one.verdict for one in sent],
            "errors": [one.error for one in sent],
            "reused": [one.reused for one in sent],
            "calls": receiver.calls(),
            "requests": receiver.requests,
            "asked": asked,
        }


def slow_names(count: str) -> dict[str, Any]:
    """A healthy name beside `count` names whose servers never answer, with the resolver of this system."""
    prepare()
    return with_real_name_servers(int(count))


SCENES: dict[str, Callable[..., Any]] = {
    scene.__name__: scene for scene in (hostile, unguarded, watched, tls, rebinding, slow_names)
}

if __name__ == "__main__":
    result = SCENES[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(result) + "\n")
