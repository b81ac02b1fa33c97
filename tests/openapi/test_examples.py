"""Every example of the document, sent as it stands and answered as it says.

`STATES` says what the database must hold for the routes that need more than a pending delivery. A route without an
example fails in `test_document`, one that the world does not answer well fails here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.api import rows
from tests.api.rows import Caller
from tests.api.test_acknowledgements import signed
from tests.openapi import world
from tests.openapi.document import Operation, faults, operations
from tests.receiver import Answer, Receiver

pytestmark = pytest.mark.django_db

State = Callable[[Caller, Receiver], None]


def _asked(by: Caller, receiver: Receiver) -> None:
    receiver.answers.append(Answer(body=b'{"outcome": "processed"}'))
    world.delivery(by, "unknown", capability={"query_url": receiver.url})


def _pending(by: Caller, receiver: Receiver) -> None:
    world.delivery(by)


STATES: dict[str, State] = {
    "resolve_operation": lambda by, _: world.delivery(by, "unknown", capability={"idempotent": False}),
    "query_operation": _asked,
    "acknowledge_operation": lambda by, _: world.delivery(by, "unknown"),
    "replay_delivery": lambda by, _: world.delivery(by, "failed"),
    "replay_event": lambda by, _: world.delivery(by, "failed"),
    **dict.fromkeys(("get_job", "cancel_job"), lambda by, _: world.job(by)),
    **dict.fromkeys(("get_key", "rotate_key", "revoke_key"), lambda by, _: world.key(by)),
    **dict.fromkeys(
        ("get_event_type", "update_event_type", "archive_event_type", "unarchive_event_type"),
        lambda by, _: world.event_type(by),
    ),
    "verify_endpoint": world.challenged,
    "move_delivery_aside": lambda by, _: world.delivery(by, order={"ordered": True}),
}

TEXT = {"application/x-ndjson"}

CASES = [
    pytest.param(operation, kind, example, id=f"{operation.id} {name}")
    for operation in operations()
    for name, kind, example in (list(operation.examples()) or [("", "application/json", None)])
]


@pytest.mark.parametrize(("operation", "kind", "example"), CASES)
def test_an_example_is_answered_as_documented(operation: Operation, kind: str, example: Any) -> None:
    rows.tenant("default")
    by = rows.caller(tenant=None)
    with Receiver() as receiver:
        STATES.get(operation.id, _pending)(by, receiver)
        body = b"" if example is None else example.encode() if kind in TEXT else json.dumps(example).encode()
        headers = by.headers if operation.needs_a_key else signed(world.SECRET, body)
        answer = by.client.generic(operation.method, operation.example_path, body, content_type=kind, headers=headers)
    assert 200 <= answer.status_code < 300, answer.content
    documented = operation.spec["responses"].get(str(answer.status_code))
    assert documented is not None, answer.status_code
    if "content" in documented:
        schema = documented["content"]["application/json"]["schema"]
        assert faults(schema, json.loads(answer.content)) == []
    else:
        assert answer.content == b""
