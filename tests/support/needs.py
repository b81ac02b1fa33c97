"""Which rights the named statements need, read out of their SQL."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ledger.statements import Statement

_INSERT = re.compile(r"\bINSERT INTO (\w+)(?: AS \w+)?\s*\(([^)]*)\)")
_UPDATE = re.compile(r"\bUPDATE (\w+) AS \w+\s+SET\b")
_DELETE = re.compile(r"\bDELETE FROM (\w+)\b")
_CONFLICT = re.compile(r"\bINSERT INTO (\w+)(?:(?!\bINSERT INTO\b).)*?\bDO UPDATE\s+SET\b", re.DOTALL)
_LOCKED = re.compile(r"\bFOR (?:NO KEY )?UPDATE OF (\w+)")
_ALIAS = r"\b(?:FROM|JOIN)\s+(\w+) AS {}\b"
_WORD = re.compile(r"[(),]|\b\w+\b|=")
_ENDS = frozenset({"FROM", "WHERE", "RETURNING"})


@dataclass(slots=True)
class Needs:
    """What statements do to one table; `locks`: they lock rows, for which one column's UPDATE is enough."""

    insert: set[str] = field(default_factory=set)
    update: set[str] = field(default_factory=set)
    delete: bool = False
    locks: bool = False


def _set_list(text: str) -> set[str]:
    """The columns before each top-level `=` of a SET list that `text` begins with."""
    found, depth, fresh, name = set(), 0, True, ""
    for word in _WORD.findall(text):
        if word == "(":
            depth += 1
        elif word == ")":
            depth -= 1
            if depth < 0:
                break
        elif depth == 0 and word in _ENDS:
            break
        elif depth == 0 and word == ",":
            fresh = True
        elif fresh and word == "=":
            found.add(name)
            fresh = False
        elif fresh:
            name = word
    return found


def of(statements: Iterable[Statement]) -> dict[str, Needs]:
    """By table."""
    needs: defaultdict[str, Needs] = defaultdict(Needs)
    for statement in statements:
        sql = statement.sql
        for match in _INSERT.finditer(sql):
            needs[match[1]].insert |= {column.strip() for column in match[2].split(",")}
        for pattern in (_UPDATE, _CONFLICT):
            for match in pattern.finditer(sql):
                needs[match[1]].update |= _set_list(sql[match.end() :])
        for match in _DELETE.finditer(sql):
            needs[match[1]].delete = True
        for match in _LOCKED.finditer(sql):
            tables = {found[1] for found in re.finditer(_ALIAS.format(match[1]), sql)}
            assert tables, f"{statement.name} locks {match[1]}, which is no alias of a table"
            for table in tables:
                needs[table].locks = True
    return dict(needs)
