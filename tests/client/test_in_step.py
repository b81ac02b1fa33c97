"""The client's results are what the API's document says, field for field."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from relay.client import configuration, results

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
OWN = {"etag", "payload"}
"""What is not in a body: from a header, and the exact bytes."""
NAMES = {"EventType": {"global": "every_tenant"}}
PARTS = {"Delivery": ["Delivery", "Cancelled"], "Endpoint": ["Endpoint", "EndpointMade"], "Key": ["Key", "KeyMade"]}
"""One result of the client for several answers that differ in a field or two."""
CALLED = {"Sent": "Accepted", "Job": "JobItem", "Replayed": "ReplayedDelivery"}
NO_ANSWERS = {"BatchResult", "BatchError"}
"""Two kinds of items in one."""
SHAPES = [
    one
    for module in (results, configuration)
    for name, one in vars(module).items()
    if isinstance(one, type) and one.__module__ == module.__name__ and name not in NO_ANSWERS
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_field_of_an_answer_is_a_field_of_its_result(shape: type[Any]) -> None:
    answers = [DOCUMENT[name] for name in PARTS.get(shape.__name__, [CALLED.get(shape.__name__, shape.__name__)])]
    renamed = NAMES.get(shape.__name__, {})
    told = {renamed.get(name, name) for answer in answers for name in answer["properties"]}
    known = {one.name: one for one in fields(shape)}
    assert set(known) - OWN - (told | {"replayed"}) == set()
    assert told - set(known) == set(), f"relay.client.{shape.__name__} lacks what the API answers"
    needed = {name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING}
    assert needed <= told
