"""Calls that are written as program text: `get_weather(city="Haifa")`, `[a(x=1), b()]`. Read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from fingerpost.choose.guard.shapes import MAX_CALLS, WrittenCall, parse_json_arguments

MAX_PROGRAM_LENGTH: Final = 16_000
_MAX_LITERAL_DEPTH: Final = 60
_BRACKET_SIGNS: Final = re.compile(r"[\[({]")
_WRAPPER_WORDS: Final = frozenset({"print", "await"})


def parse_program_calls(text: str) -> tuple[WrittenCall, ...]:
    """The calls this text is made of: each an expression or a member of a list, with plain values."""
    tree = _parse_python(text.strip())
    if not isinstance(tree, ast.Module):
        return ()
    found: list[WrittenCall] = []
    for statement in tree.body[:MAX_CALLS]:
        if not isinstance(statement, ast.Expr):
            return ()
        for node in _iterate_members(statement.value):
            call = _parse_call_node(node)
            if call is None:
                return ()
            found.append(call)
    return tuple(found)


def parse_session_calls(text: str) -> tuple[WrittenCall, ...]:
    """The calls of a Python session that shows no output and imports nothing; none where it does."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if not all(line.startswith((">>>", "...")) for line in lines):
        return ()
    tree = _parse_python("\n".join(line[3:].removeprefix(" ") for line in lines))
    if not isinstance(tree, ast.Module):
        return ()
    found: list[WrittenCall] = []
    for statement in tree.body[:MAX_CALLS]:
        if not isinstance(statement, ast.Expr | ast.Assign):
            return ()
        found += [
            call for node in _iterate_members(statement.value) if (call := _parse_call_node(node)) is not None
        ]
    return tuple(found)


def parse_literal(text: str) -> object:
    """A value written as a Python literal, or None."""
    tree = _parse_python(text.strip())
    if isinstance(tree, ast.Module) and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        return _evaluate_node(tree.body[0].value)
    return None


def _parse_python(text: str) -> ast.AST | None:
    if (
        len(text) > MAX_PROGRAM_LENGTH
        or len(_BRACKET_SIGNS.findall(text)) > _MAX_LITERAL_DEPTH * 10
        or _is_too_deep(text)
    ):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_too_deep(text: str) -> bool:
    """Python's own parser gives up on deep nesting, not always gently; so does this, before it."""
    depth = 0
    for sign in re.findall(r"[\[({\])}]|[-+~]{3,}", text):
        depth += 1 if sign in "[({" else -1
        if depth > _MAX_LITERAL_DEPTH or len(sign) > _MAX_LITERAL_DEPTH:
            return True
    return False


def _iterate_members(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Await):
        node = node.value
    if isinstance(node, ast.List | ast.Tuple):
        yield from node.elts[:MAX_CALLS]
    elif isinstance(node, ast.Call) and _get_dotted_name(node.func) in _WRAPPER_WORDS and len(node.args) == 1:
        yield node.args[0]
    else:
        yield node


def _parse_call_node(node: ast.expr) -> WrittenCall | None:
    if not isinstance(node, ast.Call):
        return None
    name = _get_dotted_name(node.func)
    if not name:
        return None
    values: dict[str, object] = {}
    for keyword in node.keywords:
        value = _evaluate_node(keyword.value)
        if keyword.arg is None or (value is None and not _is_none(keyword.value)):
            return WrittenCall(name=name, arguments=None)
        values[keyword.arg] = value
    # A value without a name could be any parameter: it is not for us to guess which.
    arguments = None if node.args else parse_json_arguments(values)
    return WrittenCall(name=name, arguments=arguments, has_keywords=not node.args)


def _get_dotted_name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def _evaluate_node(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
