"""The conditions of a statement, read from its text: each one whose absence would let through what is refused now.

A refusal is a disjunction: every branch of it refuses by itself. A permission is a conjunction: every term of it does.
An equality of two columns of one name that is a key joins rows, and is no condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KEYS = ("run_id", "operation_key", "task_id", "step_id", "effect_version", "active_run_id", "endpoint_id")
JOIN = re.compile(rf"\w+\.({'|'.join(KEYS)}) = \w+\.({'|'.join(KEYS)})")
WORD = re.compile(r"'[^']*'|\w+|\S")
ENDS = {"ORDER", "RETURNING", "UNION", "LIMIT", "FOR", "JOIN", "LEFT", "CROSS", "WHERE", "GROUP", "FROM", "SET"}
"""What ends a condition at its own depth."""


def conditions(sql: str) -> list[str]:
    """The conditions in the order of the text, with single blanks."""
    text = " ".join(sql.split())
    found: list[str] = []
    for case in re.finditer(r"CASE (WHEN (?:(?!CASE ).)*?) END AS refusal\b", text):
        for clause, answer in re.findall(r"WHEN (.*?) THEN (NULL|'\w+')", case[1]):
            found += refusing(clause) if answer != "NULL" else []
    for expression, name in re.findall(
        r"(?<=, )((?:(?!, ).)*?) (?:IS TRUE )?AS (free|current|alive|run_unmoved)\b", text
    ):
        found += refusing(expression) if name == "alive" else permitting(expression)
    for start in re.finditer(r"\b(?:WHERE|ON) (?!CONFLICT)", text):
        found += permitting(_until_end(text, start.end()))
    return [one for one in dict.fromkeys(found) if one != "true" and not JOIN.fullmatch(one)]


def refusing(expression: str) -> list[str]:
    """The branches of a refusal; what is not true within `(…) IS NOT TRUE` is a permission."""
    expression = _bare(expression)
    if expression.endswith(" IS NOT TRUE"):
        return permitting(expression.removesuffix(" IS NOT TRUE"))
    branches = list(_split(expression, "OR"))
    return [one for branch in branches for one in refusing(branch)] if len(branches) > 1 else branches


def permitting(expression: str) -> list[str]:
    """The terms of a permission. Where it has several ways in, those of each; of single terms, all as one."""
    expression = _bare(expression.removesuffix(" IS TRUE"))
    terms = list(_split(expression, "AND"))
    if len(terms) > 1:
        return [one for term in terms for one in permitting(term)]
    ways = [way for way in _split(expression, "OR") if len(list(_split(way, "AND"))) > 1]
    return [one for way in ways for one in permitting(way)] if ways else terms


def _until_end(text: str, start: int) -> str:
    """The condition that begins at `start`: up to what closes or follows it."""
    depth = 0
    for word in WORD.finditer(text, start):
        if word[0] == "(":
            depth += 1
        elif word[0] == ")":
            if depth == 0:
                return text[start : word.start()].strip()
            depth -= 1
        elif depth == 0 and word[0] in ENDS:
            return text[start : word.start()].strip()
    return text[start:].strip()


def _bare(expression: str) -> str:
    """Without parentheses around the whole."""
    expression = expression.strip()
    while expression.startswith("(") and _closing(expression) == len(expression) - 1:
        expression = expression[1:-1].strip()
    return expression


def _closing(expression: str) -> int:
    depth = 0
    for place, sign in enumerate(expression):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return place
    raise AssertionError(f"unbalanced: {expression}")


def _split(expression: str, word: str) -> Iterator[str]:
    """At each `word` that stands outside of parentheses."""
    depth, start = 0, 0
    for found in WORD.finditer(expression):
        depth += (found[0] == "(") - (found[0] == ")")
        if depth == 0 and found[0] == word:
            yield _bare(expression[start : found.start()])
            start = found.end()
    yield _bare(expression[start:])
