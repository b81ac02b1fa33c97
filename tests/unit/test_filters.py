"""Payload filters: what they let through, what they refuse to be, and that judging is bounded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import filters
from deliveries.filters import FilterRefused, Payload, Steps, check

INVOICE = {
    "id": "in_1042", "total": 1290, "rate": 1.0, "paid": True, "note": None, "": "empty name",
    "customer": {"country": "DE", "tags": ["gold", "eu"]},
    "lines": [{"sku": "A-1", "count": 2}, {"sku": "B-7", "count": 0}],
}  # fmt: skip


def passes(wanted: Any, payload: bytes) -> bool:
    return Payload(payload).passes(json.dumps(wanted), Steps())


CASES: tuple[tuple[Any, bool], ...] = (
    ({"id": "in_1042"}, True),
    ({"id": "in_1"}, False),
    ({"total": 1290.0}, True),
    ({"rate": 1}, True),
    ({"paid": True}, True),
    ({"paid": 1}, False),
    ({"rate": True}, False),
    ({"note": None}, True),
    ({"missing": None}, False),
    ({"": "empty name"}, True),
    ({"customer": {"country": "DE"}}, True),
    ({"customer": {"country": "DE", "tags": ["gold", "eu"]}}, True),
    ({"customer": {"tags": ["eu", "gold"]}}, False),
    ({"customer": "DE"}, False),
    ({"id": {"country": "DE"}}, False),
    ({"customer": {"$eq": {"tags": ["gold", "eu"], "country": "DE"}}}, True),
    ({"customer": {"$eq": {"country": "DE"}}}, False),
    ({"total": {"$gt": 1289}}, True),
    ({"total": {"$gt": 1290}}, False),
    ({"total": {"$gte": 1290, "$lt": 1291}}, True),
    ({"total": {"$lte": 1289.9}}, False),
    ({"total": {"$gt": "0"}}, False),
    ({"id": {"$gt": "in_1"}}, True),
    ({"paid": {"$gt": 0}}, False),
    ({"missing": {"$lt": 5}}, False),
    ({"total": {"$ne": 1}}, True),
    ({"missing": {"$ne": 1}}, True),
    ({"customer": {"country": {"$in": ["AT", "DE"]}}}, True),
    ({"customer": {"country": {"$in": []}}}, False),
    ({"missing": {"$in": [None]}}, False),
    ({"customer": {"country": {"$nin": ["AT", "DE"]}}}, False),
    ({"missing": {"$nin": ["AT"]}}, True),
    ({"id": {"$startsWith": "in_"}}, True),
    ({"id": {"$startsWith": "IN_"}}, False),
    ({"total": {"$startsWith": "1"}}, False),
    ({"id": {"$endsWith": "42"}}, True),
    ({"id": {"$contains": "104"}}, True),
    ({"customer": {"tags": {"$contains": "eu"}}}, True),
    ({"customer": {"tags": {"$contains": "e"}}}, False),
    ({"total": {"$contains": 1}}, False),
    ({"note": {"$exists": True}}, True),
    ({"missing": {"$exists": False}}, True),
    ({"missing": {"$exists": True}}, False),
    ({"missing": {"deeper": {"$exists": False}}}, True),
    ({"lines": {"$any": {"sku": "B-7", "count": 0}}}, True),
    ({"lines": {"$any": {"sku": "A-1", "count": 0}}}, False),
    ({"customer": {"$any": {"country": "DE"}}}, False),
    ({"$or": [{"id": "x"}, {"total": {"$gt": 1000}}]}, True),
    ({"$or": [{"id": "x"}, {"total": {"$gt": 2000}}]}, False),
    ({"$and": [{"paid": True}, {"$not": {"id": "x"}}]}, True),
    ({"$not": {"paid": True}}, False),
    ({"customer": {"country": {"$not": {"$in": ["FR"]}}}}, True),
    ({"total": {"$or": [{"$lt": 5}, {"$gt": 1000}]}}, True),
)


@pytest.mark.parametrize(("wanted", "expected"), CASES, ids=[json.dumps(case[0]) for case in CASES])
def test_a_filter_is_read_beside_the_payload(wanted: Any, expected: bool) -> None:
    check(wanted)
    assert passes(wanted, json.dumps(INVOICE).encode()) is expected


@pytest.mark.parametrize("payload", [b"[]", b"null", b"7", b'"in_1042"', b'[{"id":"in_1042"}]'])
def test_a_payload_without_members_matches_no_name(payload: bytes) -> None:
    assert not passes({"id": "in_1042"}, payload)
    assert passes({"id": {"$exists": False}}, payload)
    assert passes({"$not": {"id": "in_1042"}}, payload)


def test_a_payload_that_is_an_array_is_looked_into() -> None:
    assert passes({"$any": {"id": 2}}, b'[{"id":1},{"id":2}]')


REFUSED: tuple[tuple[Any, str], ...] = (
    ({}, "at least one"),
    ([], "is an object"),
    ("a", "is an object"),
    (None, "is an object"),
    ({"a": {"$gt": 1, "b": 2}}, "filter.a: operators"),
    ({"a": {"$regex": "x"}}, "there is no operator $regex"),
    ({"a": {"b": {"$in": "x"}}}, "filter.a.b.$in: takes an array"),
    ({"a": {"$gt": True}}, "takes a number or a text"),
    ({"a": {"$gt": None}}, "takes a number or a text"),
    ({"a": {"$startsWith": 1}}, "takes a text"),
    ({"a": {"$exists": 1}}, "takes true or false"),
    ({"$or": []}, "takes an array of filters"),
    ({"$and": {"a": 1}}, "takes an array of filters"),
    ({"a": float("nan")}, "JSON value"),
    ({"a": "\0"}, "NUL"),
    ({"a": "\ud800"}, "half a surrogate pair"),
    ({"a": "x" * filters.LONGEST}, "longer than"),
    ({"a": ["x" * (filters.LONGEST - 60), *[1e-20] * 8]}, "longer than"),
    ({"a": {"$in": [1e300] * 30}}, "1e+300 is no number for a filter"),
    ({"a": {"$or": [{"$lt": -1e16}, 5]}}, "1e16"),
    ({"a": {"$gt": 1e-300}}, "40 characters"),
    ({"a": [{"b": 10**40}]}, "40 characters"),
    ({"a": {"$in": list(range(filters.MOST_NODES + 1))}, "b": 1}, "more than"),
    ({str(n): n for n in range(filters.MOST_NODES + 1)}, "more than"),
)


@pytest.mark.parametrize(("wanted", "said"), REFUSED, ids=[str(case[0])[:40] for case in REFUSED])
def test_what_is_no_filter_is_refused_and_told_why(wanted: Any, said: str) -> None:
    with pytest.raises(FilterRefused) as refused:
        check(wanted)
    assert said in str(refused.value)


def test_a_filter_that_is_nested_too_deeply_is_refused() -> None:
    wanted: Any = 1
    for _ in range(filters.DEEPEST + 1):
        wanted = {"a": wanted}
    with pytest.raises(FilterRefused, match="deep"):
        check(wanted)


@pytest.mark.parametrize("number", [10**39, -(10**38), 1e15, 9999999999999998.0, 1e-30, -0.0, 0.1, 1.5e-9])
def test_a_number_that_can_be_written_out_is_let_through(number: float) -> None:
    check({"a": number})
    assert passes({"a": number}, json.dumps({"a": number}).encode())


def test_a_filter_that_is_there_is_judged_by_however_long_it_is() -> None:
    wanted = {"a": {"$in": [10**300] * 30}}
    assert not passes(wanted, b'{"a": 5}')
    assert passes(wanted, b'{"a": 1%s}' % (b"0" * 300))


@pytest.mark.parametrize(
    "saved", ['{"a": {"$regex": "x"}}', "[]", "{", '{"a": ' + "9" * 5_000 + "}", '{"a":' * 50_000 + "1" + "}" * 50_000]
)
def test_what_is_there_and_is_no_filter_lets_everything_pass_and_the_log_says_so_once(
    saved: str, caplog: pytest.LogCaptureFixture
) -> None:
    filters._matcher.cache_clear()
    for _ in range(2):
        assert Payload(b'{"a": 5}').passes(saved, Steps())
    (said,) = caplog.messages
    assert "cannot be read" in said
    assert len(said) < 400


def test_judging_takes_a_bounded_number_of_steps_and_then_passes() -> None:
    wanted = {"$or": [{"$any": {"a": {"$gt": n}}} for n in range(1, 60)]}
    check(wanted)
    payload = json.dumps([{"a": 0}] * 20_000).encode()
    assert passes(wanted, payload)
    assert not passes(wanted, json.dumps([{"a": 0}] * 100).encode())


def test_several_judgements_share_their_steps() -> None:
    steps = Steps()
    payload = Payload(json.dumps([0] * 1000).encode())
    wanted = json.dumps({"$any": {"$gt": 5}})
    told = [payload.passes(wanted, steps) for _ in range(filters.STEPS // 1000)]
    assert told[:50] == [False] * 50
    assert told[-1], "what is too much passes"


@pytest.mark.parametrize("cheap", [{"$exists": False}, {"$in": []}, {"$any": 1}])
def test_every_condition_costs_a_step_also_one_that_is_easily_told(cheap: Any) -> None:
    steps = Steps()
    assert not Payload(b"0").passes(json.dumps({"$or": [cheap] * 60}), steps)
    assert steps.left <= filters.STEPS - 60


@pytest.mark.parametrize("depth", [300, 450, 600, 900, 5_000])
def test_a_value_that_is_nested_without_end_is_refused_or_let_through_and_breaks_nothing(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with suppress(FilterRefused):
        check({"a": value})


@pytest.mark.parametrize("cheap", [{"$exists": False}, {"$in": []}, {"$not": {"$exists": True}}, {"$any": 1}])
def test_every_element_that_is_looked_at_costs_a_step(cheap: Any) -> None:
    payload = Payload(json.dumps([0] * 1000).encode())
    steps = Steps()
    assert not payload.passes(json.dumps({"$any": cheap}), steps)
    assert steps.left <= filters.STEPS - 1000


@pytest.mark.parametrize("payload", [b"[" * 100_000 + b"]" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}"])
def test_a_payload_that_cannot_be_judged_passes(payload: bytes) -> None:
    assert passes({"a": 1}, payload)


LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab$", max_size=3)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
)


@given(VALUES, VALUES)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    def plain(value: Any) -> Any:  # true and 1 are told apart, 1 and 1.0 are not, members have no order
        if isinstance(value, bool):
            return ("bool", value)
        if isinstance(value, dict):
            return ("object", {name: plain(member) for name, member in value.items()})
        if isinstance(value, list):
            return ("array", [plain(element) for element in value])
        return value

    same = plain(one) == plain(other)
    assert passes({"v": {"$eq": one}}, json.dumps({"v": other}).encode()) is same
    assert passes({"v": {"$ne": one}}, json.dumps({"v": other}).encode()) is not same
    assert passes({"v": {"$contains": one}}, json.dumps({"v": [other]}).encode()) is same
