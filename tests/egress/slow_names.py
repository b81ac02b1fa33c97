"""A healthy name beside many whose name servers never answer: how long the healthy one's requests take."""

from __future__ import annotations

import itertools
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from deliveries.transport import resolve
from deliveries.transport.base import Outcome
from deliveries.transport.curl import CurlTransport
from deliveries.transport.resolve import Lookup
from tests.receiver import Receiver
from tests.transports import LOOPBACK, request

REQUESTS = 200
NEW_NAMES = 10
PER_NAME = 5  # requests that wait for each silent name
PATIENCE_MS = 1500
NAME_SERVER = "127.0.0.53"


class Trial:
    """One transport, its healthy requests one after the other, and its silent ones, always `PER_NAME` of each name."""

    def __init__(self, look_up: Lookup) -> None:
        self.transport = CurlTransport(LOOPBACK, look_up=look_up)
        self.silent: list[Outcome] = []
        self._keys = itertools.count(1)
        self._names: dict[int, str] = {}
        self.peak = 0

    def jam(self, names: list[str]) -> None:
        for name in names:
            for _ in range(PER_NAME):
                self._submit_silent(name)

    def _submit_silent(self, name: str) -> None:
        key = next(self._keys)
        self._names[key] = name
        self.transport.submit(request(key, f"http://{name}/", timeout_ms=9000, connect_timeout_ms=PATIENCE_MS))

    def healthy(self, url: str) -> float:
        """One request; how long it took, in milliseconds."""
        key = next(self._keys)
        started = time.monotonic()
        self.transport.submit(request(key, url, timeout_ms=20_000, connect_timeout_ms=20_000))
        took: float | None = None
        while took is None:
            for outcome in self.transport.poll(1.0):
                if outcome.key == key:
                    took = (time.monotonic() - started) * 1000
                    assert outcome.http_status == 200, outcome
                else:
                    self.silent.append(outcome)
                    self._submit_silent(self._names.pop(outcome.key))
            self.peak = max(self.peak, sum(thread.name == "relay-resolve" for thread in threading.enumerate()))
        return took

    def measure(self, port: int, label: str) -> dict[str, Any]:
        """Requests to one name that is in use, and to names that are new."""
        used = [self.healthy(f"http://healthy.customer.com:{port}/") for _ in range(REQUESTS)]
        new = [self.healthy(f"http://new{at}.{label}.customer.com:{port}/") for at in range(NEW_NAMES)]
        return {
            "used_ms": statistics.median(used),
            "used_worst_ms": max(used),
            "new_ms": statistics.median(new),
            "new_worst_ms": max(new),
        }


def trial(look_up: Lookup, count: int) -> dict[str, Any]:
    """The healthy names alone, then beside `count` silent ones, until requests to these have been given up."""
    resolve.REMEMBER_S = 0.1  # so that names in use are looked up again meanwhile
    with Receiver() as receiver:
        trial = Trial(look_up)
        alone = trial.measure(receiver.port, "alone")
        trial.jam([f"silent{at}.customer.com" for at in range(count)])
        until = time.monotonic() + 60
        beside: list[dict[str, Any]] = []
        while len(trial.silent) < count * PER_NAME:
            assert time.monotonic() < until, f"{len(trial.silent)} requests to silent names were given up"
            beside.append(trial.measure(receiver.port, f"beside{len(beside)}"))
        trial.transport.close()
        return {
            "names": count,
            "alone": alone,
            "beside": {
                "used_ms": statistics.median(one["used_ms"] for one in beside),
                "used_worst_ms": max(one["used_worst_ms"] for one in beside),
                "new_ms": statistics.median(one["new_ms"] for one in beside),
                "new_worst_ms": max(one["new_worst_ms"] for one in beside),
            },
            "silent": sorted({(outcome.verdict, outcome.error) for outcome in trial.silent}),
            "given_up": len(trial.silent),
            "threads": trial.peak,
        }


def with_real_name_servers(count: int) -> dict[str, Any]:
    """The trial with the resolver of this system and a name server that is silent about some names.

    To be called in a network and mount namespace.
    """
    with tempfile.TemporaryDirectory() as folder:
        for path, text in (
            ("/etc/resolv.conf", f"nameserver {NAME_SERVER}\n"),
            ("/etc/nsswitch.conf", "hosts: files dns\n"),
        ):
            if Path(path).exists():
                ours = Path(folder) / Path(path).name
                ours.write_text(text)
                subprocess.run(["mount", "--bind", str(ours), path], check=True)
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((NAME_SERVER, 53))
        threading.Thread(target=_serve_names, args=(server,), daemon=True).start()
        return trial(resolve.look_up, count)


def _serve_names(server: socket.socket) -> None:
    """Every name has the address 127.0.0.1, but those that begin with `silent`, about which nothing is said."""
    while True:
        question, client = server.recvfrom(4096)
        name, end = _name(question, 12)
        if name.startswith("silent"):
            continue
        asked = question[end : end + 4]
        an_address = asked[:2] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton("127.0.0.1") if an_address else b""
        flags = b"\x81\x80\0\1" + (b"\0\1" if an_address else b"\0\0") + b"\0\0\0\0"
        server.sendto(question[:2] + flags + question[12 : end + 4] + answer, client)


def _name(message: bytes, at: int) -> tuple[str, int]:
    labels = []
    while message[at]:
        length = message[at]
        labels.append(message[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1
