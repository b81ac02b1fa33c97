"""Runs the table once per transport, many requests at once; each case then has a test of its own to fail by name."""

from __future__ import annotations

from typing import cast

import pytest

from tests.conformance.cases import Case
from tests.conformance.suite import Found, examine

Examined = dict[str, Found]


@pytest.fixture(scope="session")
def examined(request: pytest.FixtureRequest) -> Examined:
    """By transport: what is wrong with each case that this session runs. One that no test names is not run."""
    chosen: dict[str, list[Case]] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if "examined" in getattr(item, "fixturenames", ()) and callspec is not None:
            chosen.setdefault(callspec.params["transport"], []).append(cast("Case", callspec.params["case"]))
    return _Lazily(chosen)


class _Lazily(Examined):
    """Examines a transport's cases when they are first asked for."""

    def __init__(self, chosen: dict[str, list[Case]]) -> None:
        super().__init__()
        self._chosen = chosen
        self._broke: dict[str, Exception] = {}

    def __missing__(self, transport: str) -> Found:
        if transport in self._broke:
            raise self._broke[transport]
        try:
            found = self[transport] = examine(self._chosen[transport], transport)
        except Exception as error:
            self._broke[transport] = error  # it would be the same for every case
            raise
        return found
