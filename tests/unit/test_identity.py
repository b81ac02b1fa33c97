"""An operation's public id: what is composed is parsed, and nothing else is."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.identity import MalformedOperationId, OperationId, compose, parse

RUN = uuid.UUID("019a2e2e-ff2e-7623-8771-779ddbcdf94c")

tenants = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)
steps = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)
versions = st.integers(min_value=1, max_value=999_999_999)


@given(tenants, st.uuids(), steps, versions)
def test_what_is_composed_is_parsed(tenant: str, run: uuid.UUID, step: str, version: int) -> None:
    text = compose(tenant, run, step, version)
    assert parse(text) == OperationId(tenant, run, step, version)
    assert str(parse(text)) == text


@given(st.text(max_size=120))
def test_what_is_parsed_is_written_the_same_way_and_anything_else_is_refused(text: str) -> None:
    try:
        parsed = parse(text)
    except MalformedOperationId:
        return
    assert str(parsed) == text


@given(tenants, st.uuids(), steps, versions, st.data())
def test_no_two_texts_name_one_operation(
    tenant: str, run: uuid.UUID, step: str, version: int, data: st.DataObject
) -> None:
    text = compose(tenant, run, step, version)
    at = data.draw(st.integers(0, len(text)))
    other = text[:at] + data.draw(st.sampled_from([" ", "0", "/", "\n", "A", "%", "-"])) + text[at:]
    try:
        parsed = parse(other)
    except MalformedOperationId:
        return
    assert parsed != parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "default",
        f"default/{RUN}/deliver",
        f"default/{RUN}/deliver/1/2",
        f"/{RUN}/deliver/1",
        f"Default/{RUN}/deliver/1",
        f"{'t' * 64}/{RUN}/deliver/1",
        f"default/{str(RUN).upper()}/deliver/1",
        f"default/{RUN.hex}/deliver/1",
        f"default/{{{RUN}}}/deliver/1",
        f"default/urn:uuid:{RUN}/deliver/1",
        f"default/{RUN}//1",
        f"default/{RUN}/{'s' * 65}/1",
        f"default/{RUN}/de liver/1",
        f"default/{RUN}/deliver/0",
        f"default/{RUN}/deliver/01",
        f"default/{RUN}/deliver/-1",
        f"default/{RUN}/deliver/+1",
        f"default/{RUN}/deliver/1.0",
        f"default/{RUN}/deliver/\u0661",
        f"default/{RUN}/deliver/1\n",
        f"default/{RUN}/deliver/1000000000",
        f" default/{RUN}/deliver/1",
    ],
)
def test_a_text_that_compose_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(MalformedOperationId):
        parse(text)


def test_the_complaint_does_not_repeat_a_text_of_any_length() -> None:
    with pytest.raises(MalformedOperationId) as caught:
        parse("x" * 100_000)
    assert len(str(caught.value)) < 250
