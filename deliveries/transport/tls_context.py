"""Python's TLS contexts for a `Tls`, made once and kept for as long as they are used often.

No key ever lies on a disk: OpenSSL reads it from a file in memory that is gone when it has been read. What is kept is
found by a hash, so that no key is in a dict, a repr or a traceback.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import threading
from collections import OrderedDict
from collections.abc import Iterator

from deliveries.transport.base import PUBLIC, Refused, Tls, check_tls

KEPT = 64
"""Contexts that are kept: one with the public certificates takes about a megabyte and ten milliseconds to make."""

_lock = threading.Lock()
_kept: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()


def context_for(ca_file: str, tls: Tls, sockets: type[ssl.SSLSocket]) -> ssl.SSLContext:
    """A context that trusts `ca_file`, or the certificates of `tls` instead; `Refused` when `tls` cannot be used.

    Its sockets are of the class `sockets`. Safe to call from many threads.
    """
    name = _name(ca_file, tls)
    with _lock:
        context = _kept.get(name)
        if context is None:
            context = _kept[name] = _made(ca_file, tls)
            context.sslsocket_class = sockets
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        else:
            _kept.move_to_end(name)
        return context


def _name(ca_file: str, tls: Tls) -> bytes:
    parts = (ca_file.encode(),) if tls is PUBLIC else (ca_file.encode(), *tls)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _made(ca_file: str, tls: Tls) -> ssl.SSLContext:
    """Made bare: Python's default context would log TLS secrets where SSLKEYLOGFILE says."""
    check_tls(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificate and host name are checked
    # Some builds of Python take the end of the connection for the end of TLS, which anybody on the way can bring about.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.ca_certificates:
        context.load_verify_locations(ca_file)
    else:
        try:
            context.load_verify_locations(cadata=tls.ca_certificates.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise Refused("The trusted certificates could not be read.") from None
    if tls.client_certificate:
        try:
            with _in_memory(tls.client_certificate) as certificate, _in_memory(tls.client_key) as key:
                context.load_cert_chain(certificate, key, password="")  # without one it would be asked for, and waited
        except (ssl.SSLError, ValueError):
            raise Refused("The client certificate and its key are not valid PEM, or do not belong together.") from None
    return context


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The path of a file that is in memory only, and in no folder."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
