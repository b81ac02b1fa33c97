"""A receiver for trying Relay out: checks each signature as a real receiver would, and shows what arrived."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from uuid import UUID

from django.db import connections

from deliveries.endpoints import create, living, update
from deliveries.sealing import unseal
from deliveries.signing import secret_bytes, sign

TOLERANCE_SECONDS = 300
SHOWN_CHARACTERS = 2_000
BODY_BYTES = 64 * 1_048_576


def open_endpoint(url: str, tenant_id: str) -> tuple[UUID, bytes]:
    """The id and the signing secret of the tenant's endpoint at `url`, enabled, and made if there is none.

    Raises `EndpointRefused` when Relay may not call that address.
    """
    try:
        known = living(tenant_id).filter(url=url).first()
        if known is not None:
            update(tenant_id, known.endpoint_id, {"url": url, "enabled": True})
            return known.endpoint_id, secret_bytes(unseal(known.secret_sealed, f"endpoint:{known.endpoint_id}"))
        made, secret = create(tenant_id, {"url": url, "description": "manage.py listen"})
        return made.endpoint_id, secret_bytes(secret)
    finally:
        connections.close_all()


def close_endpoint(tenant_id: str, endpoint_id: UUID) -> None:
    """Disable it, so that no event goes to a port where nobody listens."""
    try:
        update(tenant_id, endpoint_id, {"enabled": False})
    finally:
        connections.close_all()


class Listener:
    """A server on 127.0.0.1, used as a context manager; `show` gets the text for each request."""

    def __init__(self, port: int, show: Callable[[str], object]) -> None:
        self.secret = b""
        self.show = show
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.server_close()

    def serve(self, until: threading.Event) -> None:
        """Answer until the event is set."""
        server = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        server.start()
        until.wait()
        self.server.shutdown()
        server.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_BYTES))
                problem = listener.problem(dict(self.headers.items()), body)
                self.send_response(204 if problem is None else 400)
                self.end_headers()
                kind, name = self.headers.get("relay-event-type", "?"), self.headers.get("webhook-id", "?")
                shown = body.decode(errors="backslashreplace")[:SHOWN_CHARACTERS]
                verdict = "signature good" if problem is None else f"REFUSED: {problem}"
                attempt = self.headers.get("relay-attempt", "?")
                listener.show(
                    f"{datetime.now().astimezone():%H:%M:%S}  {kind}  {name}  attempt {attempt}  {verdict}\n  {shown}"
                )

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                """What arrives is shown above."""

        return Handler

    def problem(self, headers: dict[str, str], body: bytes) -> str | None:
        """Why a request is not to be trusted, by the rules of Standard Webhooks, or None."""
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            name, timestamp = lower["webhook-id"], int(lower["webhook-timestamp"])
            signatures = lower["webhook-signature"].split(" ")
        except (KeyError, ValueError):
            return "it is not signed"
        if abs(time.time() - timestamp) > TOLERANCE_SECONDS:
            return "its timestamp is too far from now"
        expected = sign(self.secret, name, timestamp, body)
        if not any(hmac.compare_digest(expected, given) for given in signatures):
            return "its signature is wrong"
        return None
