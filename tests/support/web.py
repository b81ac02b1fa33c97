"""The real web server: `manage.py serve`."""

from __future__ import annotations

import requests

from tests.support.programs import Program
from tests.support.sink import reserve


class Web(Program):
    """Serves the API at `url` once the `with` begins."""

    command = "serve"

    def __init__(self, **environment: str) -> None:
        with reserve() as free:
            port = free.getsockname()[1]
        super().__init__(
            **{"RELAY_PORT": str(port), "RELAY_HOST": "127.0.0.1", "RELAY_WEB_PROCESSES": "1", **environment}
        )
        self.url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        """It answers that it could do its work."""
        try:
            return requests.get(f"{self.url}/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False
