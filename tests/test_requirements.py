"""The promises and the tests agree, in both directions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


@cache
def proven_ids() -> dict[str, list[str]]:
    """Every id named by a `@proves(…)` in the test files, with the tests that carry it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in _find_tests(ast.parse(text).body) if "@proves(" in text else ():
            for name in _ids(node):
                found.setdefault(name, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def _find_tests(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _find_tests(node.body)


def _ids(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [
        str(argument.value)
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "proves"
        for argument in mark.args
        if isinstance(argument, ast.Constant)
    ]


def test_every_promise_without_a_gap_has_a_test() -> None:
    unproven = [
        name for name, entry in REQUIREMENTS.items() if entry.gap is None and name not in proven_ids()
    ]
    assert unproven == []


def test_every_test_proves_a_listed_promise() -> None:
    unlisted = {name: tests for name, tests in proven_ids().items() if name not in REQUIREMENTS}
    assert unlisted == {}


def test_every_row_of_the_source_documents_is_listed() -> None:
    rows = {"A": 20, "B": 13, "C": 12, "D": 15, "E": 12}
    expected = {f"{letter}{number}" for letter, count in rows.items() for number in range(1, count + 1)}
    assert expected <= REQUIREMENTS.keys()
