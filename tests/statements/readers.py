"""Which dataclass each named statement is read into, found in the source of the managers that run it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import deliveries
import ledger
from deliveries.queries import DELIVERIES
from ledger.statements import LEDGER, Statement

STATEMENTS: dict[str, dict[str, Statement]] = {"LEDGER": LEDGER, "DELIVERIES": DELIVERIES}


def every_statement() -> list[tuple[str, Statement]]:
    """Each statement with the registry that it lives in, in a fixed order."""
    return [(registry, statement) for registry, named in STATEMENTS.items() for _, statement in sorted(named.items())]


@cache
def readers() -> dict[tuple[str, str], set[type]]:
    """(registry, statement) -> the row types of its callers.

    Sees `LEDGER["lease.renew"].rows(Row, …)`, and, where the name is a parameter of a function, the constants that the
    functions of the same module pass for it.
    """
    found: dict[tuple[str, str], set[type]] = {}
    for package in (ledger, deliveries):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(f"{registry}[" in text for registry in STATEMENTS):
                module = ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts])
                for registry, name, row in _calls(ast.parse(text)):
                    found.setdefault((registry, name), set()).add(getattr(importlib.import_module(module), row))
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript(value=ast.Name(id=registry), slice=key), attr="rows"),
                args=[ast.Name(id=row), *_],
            ) if registry in STATEMENTS:
                for name in _names(key, node, functions, tree):
                    yield registry, name, row


def _names(key: ast.expr, call: ast.Call, functions: list[ast.FunctionDef], tree: ast.Module) -> Iterator[str]:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield key.value
        return
    assert isinstance(key, ast.Name), f"a statement is named by a constant or a parameter, not by {ast.dump(key)}"
    (around,) = [function for function in functions if any(inner is call for inner in ast.walk(function))]
    position = [argument.arg for argument in around.args.args].index(key.id)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=arguments) if name == around.name:
                given = arguments[position]
                assert isinstance(given, ast.Constant)
                assert isinstance(given.value, str)
                yield given.value
