"""docs/endpoints.md tells of every setting, with the numbers that the rules have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from deliveries.api.endpoint_schemas import Endpoint, EndpointNew
from deliveries.dispatch import token_server
from deliveries.rules import auth, certificates, columns

TEXT = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text()


def fields_of(model: type[BaseModel]) -> Iterator[str]:
    """The names of all fields, of those inside others too."""
    for name, field in model.model_fields.items():
        yield name
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from fields_of(inner)


def test_every_setting_is_told_of() -> None:
    named = set(fields_of(EndpointNew)) | {
        name for name, field in Endpoint.model_fields.items() if field.annotation is not None
    }
    untold = {name for name in named if f"{name}`" not in TEXT and f"`{name}" not in TEXT}
    assert untold <= {"id", "created_at", "updated_at"}


def test_the_numbers_are_those_of_the_rules() -> None:
    for number in (
        columns.URL_LENGTH, columns.QUERY_URL_LENGTH, columns.DESCRIPTION_LENGTH, columns.TYPES, columns.HEADERS,
        columns.HEADER_VALUE_LENGTH, columns.HEADERS_BYTES, columns.HOURS, columns.IN_FLIGHT, columns.FASTEST_RATE,
        columns.LARGEST_BURST, columns.LONGEST_DELAY, columns.MOST_PATIENCE, columns.TRIES, auth.TOKEN_LENGTH,
        auth.SECRET_LENGTH, auth.NAME_LENGTH, certificates.SHORTEST_RSA, token_server.TOKEN_LENGTH,
    ):  # fmt: skip
        assert f"{number:,}" in TEXT, number
