"""Calls that are written as program text: `get_weather(city="Haifa")`, `[a(x=1), b()]`. Read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from fingerpost.choose.guard.shapes import MOST_CALLS, Call, as_arguments

LONGEST_PROGRAM: Final = 16_000
_DEEPEST: Final = 60
_BRACKETS: Final = re.compile(r"[\[({]")
_PRINT: Final = frozenset({"print", "await"})


def program_calls(text: str) -> tuple[Call, ...]:
    """The calls this text is made of: each an expression or a member of a list, with plain values."""
    tree = _parse(text.strip())
    if not isinstance(tree, ast.Module):
        return ()
    found: list[Call] = []
    for statement in tree.body[:MOST_CALLS]:
        if not isinstance(statement, ast.Expr):
            return ()
        for node in _members(statement.value):
            call = _call(node)
            if call is None:
                return ()
            found.append(call)
    return tuple(found)


def prompted_calls(text: str) -> tuple[Call, ...]:
    """The calls of a Python session that shows no output and imports nothing; none where it does."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if not all(line.startswith((">>>", "...")) for line in lines):
        return ()
    tree = _parse("\n".join(line[3:].removeprefix(" ") for line in lines))
    if not isinstance(tree, ast.Module):
        return ()
    found: list[Call] = []
    for statement in tree.body[:MOST_CALLS]:
        if not isinstance(statement, ast.Expr | ast.Assign):
            return ()
        found += [call for node in _members(statement.value) if (call := _call(node)) is not None]
    return tuple(found)


def literal(text: str) -> object:
    """A value written as a Python literal, or None."""
    tree = _parse(text.strip())
    if isinstance(tree, ast.Module) and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        return _value(tree.body[0].value)
    return None


def _parse(text: str) -> ast.AST | None:
    if len(text) > LONGEST_PROGRAM or len(_BRACKETS.findall(text)) > _DEEPEST * 10 or _too_deep(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _too_deep(text: str) -> bool:
    """Python's own parser gives up on deep nesting, not always gently; so does this, before it."""
    depth = 0
    for sign in re.findall(r"[\[({\])}]|[-+~]{3,}", text):
        depth += 1 if sign in "[({" else -1
        if depth > _DEEPEST or len(sign) > _DEEPEST:
            return True
    return False


def _members(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Await):
        node = node.value
    if isinstance(node, ast.List | ast.Tuple):
        yield from node.elts[:MOST_CALLS]
    elif isinstance(node, ast.Call) and _dotted(node.func) in _PRINT and len(node.args) == 1:
        yield node.args[0]
    else:
        yield node


def _call(node: ast.expr) -> Call | None:
    if not isinstance(node, ast.Call):
        return None
    name = _dotted(node.func)
    if not name:
        return None
    values: dict[str, object] = {}
    for keyword in node.keywords:
        value = _value(keyword.value)
        if keyword.arg is None or (value is None and not _is_none(keyword.value)):
            return Call(written=name, arguments=None)
        values[keyword.arg] = value
    # A value without a name could be any parameter: it is not for us to guess which.
    arguments = None if node.args else as_arguments(values)
    return Call(written=name, arguments=arguments, keyworded=not node.args)


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
