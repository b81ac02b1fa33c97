"""The OpenAPI document as tests read it: its operations, the examples of their requests, and the schemas of answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema_rs

from deliveries.api.access import BearerKey
from relay.api import api


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    spec: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.spec["operationId"])

    @property
    def needs_a_key(self) -> bool:
        return any(BearerKey.__name__ in scheme for scheme in self.spec["security"])

    @property
    def example_path(self) -> str:
        """The path with the examples of its parameters in their places."""
        path = self.path
        for parameter in self.spec["parameters"]:
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
        return path

    def examples(self) -> Iterator[tuple[str, str, Any]]:
        """Name, media type and value of each example of a body; a body of text is text."""
        for kind, media in self.spec.get("requestBody", {}).get("content", {}).items():
            for name, example in media.get("examples", {}).items():
                yield f"{kind} {name}", kind, example["value"]
            for place, value in enumerate(_examples_of(media.get("schema", {}))):
                yield f"{kind} {place}", kind, value


@cache
def document() -> dict[str, Any]:
    """The document of this code, as a client reads it."""
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


def operations() -> list[Operation]:
    return [
        Operation(method.upper(), path, spec)
        for path, methods in document()["paths"].items()
        for method, spec in methods.items()
    ]


def _examples_of(schema: dict[str, Any]) -> list[Any]:
    """The examples that a schema, or the one that it refers to, has."""
    if "$ref" in schema:
        return _examples_of(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "examples" in schema:
        return list(schema["examples"])
    found = []
    for part in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        found += _examples_of(part)
    return found


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """What about `value` is not as `schema` of the document says."""
    whole = {**schema, "components": document()["components"]}
    return [
        f"{error.instance_path}: {error.message}" for error in jsonschema_rs.validator_for(whole).iter_errors(value)
    ]
