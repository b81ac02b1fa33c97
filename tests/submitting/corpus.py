"""Payloads that something on their way might change: how each is written in a request, and what is to come of it."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """`written` stands after `"data":` in the request; `kept` is what receivers get of it."""

    name: str
    written: bytes
    kept: bytes | None
    """None: it is refused."""
    reason: str = ""
    """Part of the refusal."""
    judgeable: bool = True
    """A schema of its event type can be asked about it; else it is refused where there is one."""


def _same(name: str, payload: bytes, *, judgeable: bool = True) -> Case:
    return Case(name, payload, payload, judgeable=judgeable)


MEGABYTE = b'"' + rb"\u0041" * 174_763 + b'"'
"""One megabyte of escapes, of which a parser would make a sixth."""

CORPUS = [
    _same("an escaped NUL", rb'"\u0000"'),
    _same("a NUL as a key", rb'{"\u0000":1}'),
    _same("a pair of surrogates", rb'"\ud83d\ude00"'),
    Case("half a pair", rb'"\ud800"', None, "half of a surrogate pair"),
    Case("half a pair as a key", rb'{"\udfff":1}', None, "half of a surrogate pair"),
    Case("the halves of a pair the wrong way round", rb'"\ude00\ud83d"', None, "half of a surrogate pair"),
    _same("what only looks like half a pair", rb'"\\ud800"'),
    Case("a byte that is not UTF-8", b'"\xff"', None, "not UTF-8"),
    Case("a surrogate in UTF-8", b'"\xed\xa0\x80"', None, "not UTF-8"),
    Case("a NUL in two bytes", b'"\xc0\x80"', None, "not UTF-8"),
    Case("a raw control character", b'"a\x01b"', None, "not JSON"),
    _same("a number that no double holds", b"1e400"),
    _same("a sum", b"0.30000000000000004"),
    _same("a sum that is spelt longer than it need be", b"0.300000000000000040000"),
    _same("2^63", b"9223372036854775808"),
    _same("2^53 + 1", b"9007199254740993"),
    _same("400 digits", b"7" * 400),
    _same("5,000 digits", b"7" * 5_000, judgeable=False),
    _same("a capital E", b"1E5"),
    _same("a plus", b"1e+05"),
    _same("minus nought", b"-0"),
    _same("minus nought with a fraction", b"-0.0"),
    Case("not a number", b"NaN", None, "not JSON"),
    Case("a leading nought", b"01", None, "not JSON"),
    _same("keys that are given twice", b'{"a":1,"a":2,"a":1}'),
    _same("keys in another order", b'{"b":1,"a":2,"":3}'),
    _same("100 deep", b"[" * 100 + b"]" * 100),
    _same("100 objects deep", b'{"a":' * 100 + b"1" + b"}" * 100),
    Case("100,000 deep", b"[" * 100_000 + b"]" * 100_000, None, "too deep"),
    _same("empty text", b'""'),
    _same("emoji", '"👩‍👩‍👧‍👦 🏳️‍🌈 ☃"'.encode()),
    _same("separators of lines", '"\u2028\u2029\u0085"'.encode()),
    _same("both spellings of one letter", '["\u00e9","e\u0301"]'.encode()),
    _same("an escaped slash", rb'"<\/script>"'),
    _same("a byte order mark inside", '"\ufeff"'.encode()),
    _same("null", b"null"),
    _same("true", b"true"),
    _same("an empty object", b"{}"),
    Case("white space around it", b"  \t 1 \t ", b"1"),
    Case("white space around and in it", b'  { "a" :\t[ ] } ', b'{ "a" :\t[ ] }'),
    Case("lines around and in it", b'\r\n {\n  "a": 1\r\n}\n\n', b'{\n  "a": 1\r\n}'),
    Case("a megabyte of escapes", MEGABYTE, None, "are accepted"),
]
