"""A receiver for trying Relay out: checks each signature as a real receiver would, and shows what arrived.

`manage.py listen` and `relay listen` use it. It knows nothing of the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from relay.cli.text import clean, clock
from relay.client.webhooks import WebhookVerificationError, verify

SHOWN_CHARACTERS = 2_000
BODY_BYTES = 64 * 1_048_576
CHALLENGE = "relay.verification"
"""The type of what Relay sends to a URL that must prove that it wants webhooks: it is said back."""


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """One request, and why it is not to be trusted; None: its signature is good."""

    at: datetime
    id: str
    type: str
    attempt: str
    headers: dict[str, str]
    body: bytes
    problem: str | None

    def text(self) -> str:
        """It, for people: what it is and what the check found, then the beginning of its body."""
        verdict = "signature good" if self.problem is None else f"REFUSED: {self.problem}"
        body = self.body.decode(errors="backslashreplace")[:SHOWN_CHARACTERS]
        return clean(f"{clock(self.at)}  {self.type}  {self.id}  attempt {self.attempt}  {verdict}\n  {body}")


class Listener:
    """A server on `host`, used as a context manager; `show` gets each request, from threads of the server's.

    `key` is what signatures are checked with, `whsec_…` (v1) or `whpk_…` (v1a); until it is set, nothing is trusted.
    OSError when the port is not free, OverflowError when it is none.
    """

    def __init__(self, port: int, show: Callable[[Arrived], object], *, host: str = "127.0.0.1") -> None:
        self.key = ""
        self.show = show
        self.server = ThreadingHTTPServer((host, port), self._handler())

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
                length = self.headers.get("Content-Length", "0")
                if not (length.isascii() and length.isdigit()) or int(length[:12]) > BODY_BYTES:
                    self.close_connection = True
                    self._answer(413 if length.isdigit() else 400)
                    return
                arrived = listener.judged(dict(self.headers.items()), self.rfile.read(int(length)))
                listener.show(arrived)  # before the answer: who waits for that before the next sees them in order
                if arrived.problem is not None:
                    self._answer(400)
                elif arrived.type == CHALLENGE:
                    self._answer(200, arrived.body)
                else:
                    self._answer(204)

            def _answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                """What arrives is shown above."""

        return Handler

    def judged(self, headers: dict[str, str], body: bytes) -> Arrived:
        """A request, judged by the rules of Standard Webhooks."""
        lower = {name.lower(): value for name, value in headers.items()}
        problem = None
        try:
            verify(self.key, lower, body)
        except WebhookVerificationError as refused:
            problem = str(refused)
        except ValueError:
            problem = "there is nothing yet to check it with"
        return Arrived(
            at=datetime.now().astimezone(),
            id=lower.get("webhook-id", "?"),
            type=lower.get("relay-event-type", "?"),
            attempt=lower.get("relay-attempt", "?"),
            headers=lower,
            body=body,
            problem=problem,
        )
