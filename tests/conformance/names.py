"""Names for the transports to look up, answered here: nothing leaves the machine."""

from __future__ import annotations

import socket
import threading

from tests.conformance.certificates import HOST

_ADDRESSES: dict[str, tuple[str, ...]] = {
    HOST: ("127.0.0.1",),
    "no-address.example.com": (),
    "first-refuses.example.com": ("127.0.0.2", "127.0.0.1"),
    "first-silent.example.com": ("127.0.0.2", "127.0.0.1"),
    "all-refuse.example.com": ("127.0.0.2", "127.0.0.3"),
    "private.example.com": ("10.0.0.1",),
    "mixed.example.com": ("127.0.0.1", "10.0.0.1"),
}
_ERRORS = {
    "not-there.example.com": socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    "server-fails.example.com": socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    "server-refuses.example.com": socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution"),
    "gives-up.example.com": socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    "silent.example.com": socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    "slow.example.com": socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
}
_PATIENCE = {"gives-up.example.com": 0.15, "silent.example.com": 30.0, "slow.example.com": 30.0}


class Names:
    """A name server that also fails and hangs; `release` ends what hangs. Called from threads of the transport."""

    def __init__(self) -> None:
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def look_up(self, host: str) -> tuple[str, ...]:
        host.encode("idna")  # UnicodeError for a label that is too long, as the system's resolver raises it
        host = host.rstrip(".")
        self._released.wait(_PATIENCE.get(host, 0.0))
        if host in _ADDRESSES:
            return _ADDRESSES[host]
        error = _ERRORS[host]
        raise socket.gaierror(error.errno, error.strerror)
