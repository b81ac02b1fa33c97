"""A producer: submits to a web server that runs, byte for byte, with a key of one tenant."""

from __future__ import annotations

import requests

from deliveries import keys
from deliveries.models import Scope

JSON, LINES = "application/json", "application/x-ndjson"


class Producer:
    """Has a session of its own; every thread needs its own producer, by `another`."""

    def __init__(self, url: str, tenant_id: str, key: str | None = None) -> None:
        self.url = url
        self.tenant_id = tenant_id
        self.key = key or keys.new_key("a producer", [Scope.EVENTS_WRITE, Scope.READ], tenant_id)[1]
        self._session = requests.Session()

    def another(self, url: str | None = None) -> Producer:
        """The same producer on a connection of its own, perhaps at another server."""
        return Producer(url or self.url, self.tenant_id, self.key)

    def post(self, path: str, body: bytes, kind: str = JSON, **headers: str) -> requests.Response:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return self._session.post(
            f"{self.url}{path}",
            data=body,
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": kind, **named},
            timeout=60,
        )

    def event(self, body: bytes, **headers: str) -> requests.Response:
        """A request for one event."""
        return self.post("/v1/events", body, **headers)

    def batch(self, items: list[bytes], kind: str = JSON) -> requests.Response:
        """A request for these items, as an array or one a line."""
        body = b"[" + b",".join(items) + b"]" if kind == JSON else b"\n".join(items)
        return self.post("/v1/events/batch", body, kind)

    def read(self, event_id: str) -> bytes:
        """What the API shows of an event."""
        answer = self._session.get(
            f"{self.url}/v1/events/{event_id}", headers={"Authorization": f"Bearer {self.key}"}, timeout=60
        )
        assert answer.status_code == 200, answer.text
        return answer.content
