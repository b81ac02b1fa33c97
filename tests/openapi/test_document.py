"""`docs/openapi.json` is what this code serves, and says of every route what a client needs to know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.openapi import COMMAND
from tests.openapi.document import Operation, document, operations

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_committed_document_is_what_this_code_serves() -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == document(), f"make it anew: {COMMAND}"


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.id)
def test_every_route_is_described(operation: Operation) -> None:
    assert operation.spec["summary"]
    assert operation.spec["description"], "what it does, and the scope that it needs"
    assert operation.spec["tags"]
    if "requestBody" in operation.spec:
        assert list(operation.examples()), "an example of its body"
    for status, response in operation.spec["responses"].items():
        assert response["description"], status
    assert any(status.startswith("2") for status in operation.spec["responses"])
    assert "503" in operation.spec["responses"]


def test_names_of_operations_are_unique() -> None:
    names = [operation.id for operation in operations()]
    assert len(names) == len(set(names))
