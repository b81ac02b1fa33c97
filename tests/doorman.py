"""A TLS server that says in its answers whom it took the client for, and the authorities that make certificates."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "hooks.customer.com"


class Authority:
    """A private certificate authority: `pem` is what trusts it."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.pem = self._signed(self._name, self._key, ca=True)

    def server(self, *, asks: Authority | None = None, required: bool = False, newest: bool = True) -> ssl.SSLContext:
        """For a server called HOST, that `asks` for certificates of an authority; TLS 1.2 unless `newest`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate, key = self.issue(HOST)
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + key)
            file.flush()
            context.load_cert_chain(file.name)
        if asks is not None:
            context.load_verify_locations(cadata=asks.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if not newest:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """A certificate for `name` and its key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._signed(_named(name), key, ca=False), key_pem(key)

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> bytes:
        now = datetime.now(UTC)
        alternative = x509.SubjectAlternativeName([x509.DNSName(HOST)])
        builder = x509.CertificateBuilder(
            subject_name=subject,
            issuer_name=self._name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(hours=1),
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if not ca:
            builder = builder.add_extension(alternative, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes = b"") -> bytes:
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        protection = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Doorman:
    """Serves on 127.0.0.1 while the `with` block lasts, a thread per connection.

    Every answer has `X-Client` (common name of the certificate shown, or `nobody`), `X-Connection` (counted from 1) and
    `X-Resumed`; `seen` are the clients of all complete requests.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._open: set[socket.socket] = set()
        self.seen: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"https://{HOST}:{self.port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, next(self._numbers)), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with (
            contextlib.suppress(OSError),  # the client was refused, or went away
            self._context.wrap_socket(connection, server_side=True) as tls,
        ):
            self._open.add(tls)
            client = _common_name(tls)
            answer = (
                f"HTTP/1.1 200 OK\r\nX-Client: {client}\r\nX-Connection: {number}\r\n"
                f"X-Resumed: {tls.session_reused}\r\nContent-Length: 0\r\n\r\n"
            ).encode()
            stream = tls.makefile("rb")
            while stream.readline():
                length = 0
                while (line := stream.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line[15:])
                stream.read(length)
                self.seen.append(client)
                tls.sendall(answer)


def _common_name(tls: ssl.SSLSocket) -> str:
    shown = tls.getpeercert(binary_form=True)
    if not shown:
        return "nobody"
    (name,) = x509.load_der_x509_certificate(shown).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)
