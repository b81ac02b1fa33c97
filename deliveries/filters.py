"""Payload filters: which events of the wanted types an endpoint gets, told by what is in their data.

A filter is a JSON value, read beside the payload:

- an object of member names: each named member must match what stands beside its name;
- a value (text, number, true, false, null, an array): the payload must be equal to it, `1` and `1.0` being equal;
- an object of operators, all of which must hold:
  `$eq` `$ne` (any value) · `$gt` `$gte` `$lt` `$lte` (two numbers, or two texts by code point) · `$in` `$nin` (an array
  of values) · `$startsWith` `$endsWith` (text) · `$contains` (part of a text, or a value that an array holds) ·
  `$exists` (true or false) · `$any` (some element of an array matches this filter) · `$and` `$or` (an array of filters)
  · `$not` (a filter).

A member that is not there matches nothing but `$exists: false`, `$ne` and `$nin`. Values of different types are unequal
and in no order. An object cannot mix operators with names; a member whose name begins with `$` cannot be named.

Judging is bounded: there are no regular expressions, and it stops after `STEPS` for all of a submission. What could not
be judged is passed: an event too many is a nuisance, an event that was dropped is a loss.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

LONGEST = 8_192
"""Characters of a filter as JSON."""
DEEPEST = 16
MOST_NODES = 200
LONGEST_NUMBER, LARGEST = 40, 1e16
"""Characters of a number that is written out, and the bound of one with a fraction or an exponent."""
STEPS = 200_000
"""Comparisons in all judgements of one submission."""

_MISSING = object()
_NO_NUMBER = (
    "{} is no number for a filter: written out it may have at most 40 characters, and one with a fraction or an "
    "exponent must be below 1e16."
)

log = logging.getLogger("relay.filters")


class FilterRefused(ValueError):
    """The filter is not one. The message says where and why."""


class _TooLong(Exception):
    """The judgement took more than `STEPS`."""


class Steps:
    """How many comparisons may still be made: for all events and filters of one submission together."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooLong


Matcher = Callable[[Any, Steps], bool]


def check(wanted: Any) -> None:
    """`FilterRefused` unless `wanted` is a filter: a JSON value of the form above, within the limits."""
    try:
        text = json.dumps(wanted, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise FilterRefused("A filter is a JSON value, not nested too deeply.") from None
    if "\\u0000" in text:
        raise FilterRefused("A filter may not hold a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterRefused("A filter may not hold half a surrogate pair.") from None
    try:
        if written_length(wanted) > LONGEST:
            raise FilterRefused(f"The filter is longer than {LONGEST} characters.")
        _compile(text)
    except RecursionError:
        raise FilterRefused("A filter is a JSON value, not nested too deeply.") from None


def written_length(wanted: Any) -> int:
    """Characters of a filter as the database writes it, or a few more; `FilterRefused` for a number that is too long.

    It writes numbers out: 1e300 has 301 digits there.
    """
    if isinstance(wanted, dict):
        return 2 + sum(len(json.dumps(name)) + 4 + written_length(member) for name, member in wanted.items())
    if isinstance(wanted, list):
        return 2 + sum(2 + written_length(element) for element in wanted)
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        if isinstance(wanted, float) and abs(wanted) >= LARGEST:
            raise FilterRefused(_NO_NUMBER.format(str(wanted)[:40]))
        length = len(format(Decimal(repr(wanted)), "f")) if isinstance(wanted, float) else wanted.bit_length() // 4 + 1
        if isinstance(wanted, int) and length < LONGEST:
            length = len(str(wanted))
        if length > LONGEST_NUMBER:
            raise FilterRefused(_NO_NUMBER.format(str(wanted)[:40] if length < LONGEST else "A number"))
        return length
    return len(json.dumps(wanted))


class Payload:
    """An event's data, to be judged by any number of filters."""

    def __init__(self, payload: bytes) -> None:
        try:
            self._value = json.loads(payload)
            self._readable = True
        except (RecursionError, ValueError):
            self._readable = False  # JSON that Python does not read: nested by the thousand, or with endless numbers

    def passes(self, wanted: str, steps: Steps) -> bool:
        """Whether it is for an endpoint with this filter, which is JSON. What takes more than what is left of `steps`
        passes, and so does everything where the filter cannot be read."""
        if not self._readable:
            return True
        try:
            return _matcher(wanted)(self._value, steps)
        except (_TooLong, RecursionError):
            return True


@lru_cache(maxsize=1024)
def _matcher(text: str) -> Matcher:
    """What judges by a filter that is there, however it came there."""
    try:
        return _compile(text)
    except (FilterRefused, ValueError, RecursionError) as unreadable:
        log.warning("a filter cannot be read, and everything passes it: %s", str(unreadable)[:200])
        return lambda value, steps: True


def _compile(text: str) -> Matcher:
    wanted = json.loads(text)
    if not isinstance(wanted, dict) or not wanted:
        raise FilterRefused("A filter is an object with at least one member name or operator.")
    return _Compiler().compile(wanted, "filter", 0)


class _Compiler:
    def __init__(self) -> None:
        self.nodes = 0

    def compile(self, wanted: Any, at: str, depth: int) -> Matcher:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise FilterRefused(f"The filter has more than {MOST_NODES} conditions.")
        if depth > DEEPEST:
            raise FilterRefused(f"{at}: nested more than {DEEPEST} deep.")
        if not isinstance(wanted, dict):
            return _equal_to(wanted)
        operators = [name for name in wanted if name.startswith("$")]
        if operators and len(operators) < len(wanted):
            raise FilterRefused(f"{at}: operators ($…) and member names cannot stand side by side; use $and.")
        if operators:
            return _all([self.operator(name, wanted[name], f"{at}.{name}", depth) for name in operators])
        return _all([_member(name, self.compile(wanted[name], f"{at}.{name}", depth + 1)) for name in wanted])

    def operator(self, name: str, given: Any, at: str, depth: int) -> Matcher:
        if name in ("$and", "$or"):
            if not isinstance(given, list) or not given:
                raise FilterRefused(f"{at}: takes an array of filters.")
            matchers = [self.compile(one, f"{at}[{index}]", depth + 1) for index, one in enumerate(given)]
            return _all(matchers) if name == "$and" else _some(matchers)
        if name in ("$not", "$any"):
            matcher = self.compile(given, at, depth + 1)
            return _not(matcher) if name == "$not" else _any_element(matcher)
        make = _OPERATORS.get(name)
        if make is None:
            known = ", ".join([*_OPERATORS, "$any", "$and", "$or", "$not"])
            raise FilterRefused(f"{at}: there is no operator {name[:40]}; there are {known}.")
        self.nodes += len(given) if isinstance(given, list) else 0
        try:
            return make(given)
        except FilterRefused as refused:
            raise FilterRefused(f"{at}: {refused}") from None


def _all(matchers: list[Matcher]) -> Matcher:
    return matchers[0] if len(matchers) == 1 else lambda value, steps: all(one(value, steps) for one in matchers)


def _some(matchers: list[Matcher]) -> Matcher:
    return lambda value, steps: any(one(value, steps) for one in matchers)


def _not(matcher: Matcher) -> Matcher:
    return lambda value, steps: not matcher(value, steps)


def _member(name: str, matcher: Matcher) -> Matcher:
    def match(value: Any, steps: Steps) -> bool:
        steps.take()
        return matcher(value.get(name, _MISSING) if isinstance(value, dict) else _MISSING, steps)

    return match


def _any_element(matcher: Matcher) -> Matcher:
    def match(value: Any, steps: Steps) -> bool:
        steps.take()
        if not isinstance(value, list):
            return False
        for element in value:
            steps.take()
            if matcher(element, steps):
                return True
        return False

    return match


def _same(one: Any, other: Any, steps: Steps) -> bool:
    """JSON's equality: true is not 1, members have no order, and what is not there equals nothing."""
    steps.take()
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name], steps) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b, steps) for a, b in zip(one, other, strict=True))
    if isinstance(one, str) or isinstance(other, str):
        steps.left -= len(one) // 64 if isinstance(one, str) else 0
    return bool(one == other)


def _equal_to(wanted: Any) -> Matcher:
    return lambda value, steps: _same(wanted, value, steps)


def _one_of(given: Any) -> Matcher:
    if not isinstance(given, list):
        raise FilterRefused("takes an array of values.")

    def match(value: Any, steps: Steps) -> bool:
        steps.take()
        return any(_same(one, value, steps) for one in given)

    return match


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Matcher]:
    def make(given: Any) -> Matcher:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise FilterRefused("takes a number or a text.")
        kinds: Any = str if isinstance(given, str) else int | float

        def match(value: Any, steps: Steps) -> bool:
            steps.take()
            return not isinstance(value, bool) and isinstance(value, kinds) and holds(value, given)

        return match

    return make


def _text(holds: Callable[[str, str], bool]) -> Callable[[Any], Matcher]:
    def make(given: Any) -> Matcher:
        if not isinstance(given, str):
            raise FilterRefused("takes a text.")

        def match(value: Any, steps: Steps) -> bool:
            steps.take()
            return isinstance(value, str) and holds(value, given)

        return match

    return make


def _contains(given: Any) -> Matcher:
    def match(value: Any, steps: Steps) -> bool:
        steps.take()
        if isinstance(value, str):
            steps.left -= len(value) // 64
            return isinstance(given, str) and given in value
        return isinstance(value, list) and any(_same(given, element, steps) for element in value)

    return match


def _exists(given: Any) -> Matcher:
    if not isinstance(given, bool):
        raise FilterRefused("takes true or false.")

    def match(value: Any, steps: Steps) -> bool:
        steps.take()
        return (value is not _MISSING) is given

    return match


_OPERATORS: Mapping[str, Callable[[Any], Matcher]] = {
    "$eq": _equal_to,
    "$ne": lambda given: _not(_equal_to(given)),
    "$gt": _ordered(lambda value, given: value > given),
    "$gte": _ordered(lambda value, given: value >= given),
    "$lt": _ordered(lambda value, given: value < given),
    "$lte": _ordered(lambda value, given: value <= given),
    "$in": _one_of,
    "$nin": lambda given: _not(_one_of(given)),
    "$startsWith": _text(str.startswith),
    "$endsWith": _text(str.endswith),
    "$contains": _contains,
    "$exists": _exists,
}
