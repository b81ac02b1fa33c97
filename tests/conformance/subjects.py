"""The transports under test."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from deliveries.transport.base import Transport
from tests.conformance.certificates import identities
from tests.conformance.names import Names
from tests.conformance.running import policy

Make = Callable[[str, Names], Transport]


def _curl(ca_file: str, names: Names) -> Transport:
    from deliveries.transport.curl import CurlTransport

    return CurlTransport(policy(), ca_file=ca_file, look_up=names.look_up)


def _requests(ca_file: str, names: Names) -> Transport:
    from deliveries.transport.requests import RequestsTransport

    return RequestsTransport(policy(), ca_file=ca_file, look_up=names.look_up)


SUBJECTS: dict[str, Make] = {"curl": _curl, "requests": _requests}


@contextlib.contextmanager
def subject(name: str, ca_file: Literal["trusted", "missing"] = "trusted") -> Iterator[Transport]:
    """A transport that trusts the suite's certificates, or is told to trust a file that is not there."""
    names = Names()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trusted.pem"
        if ca_file == "trusted":
            path.write_bytes(identities().trusted)
        transport = SUBJECTS[name](str(path), names)
        try:
            yield transport
        finally:
            names.release()
            transport.close()
