"""JSON written as text where an object or a list was expected."""

from __future__ import annotations

import ast
import json
from typing import Final, NoReturn, cast

from fingerpost.call.arguments.values import MAX_DEPTH, MAX_NODES, count_nodes, is_list, is_object, plain
from fingerpost.records import Json, check_json

LONGEST_TEXT: Final = 1_000_000
LONGEST_PYTHON: Final = 4_000


def parsed(value: Json) -> Json:
    """The object or list a text spells out, or None."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return None
    text = value.strip()
    if not text.startswith(("{", "[")) or not text.endswith(("}", "]")):
        return None
    found = _as_json(text)
    if found is None and len(text) <= LONGEST_PYTHON:
        found = _as_python(text)
    if check_json(found, max_depth=MAX_DEPTH) is not None:
        return None
    result = cast("Json", found)
    return plain(result) if count_nodes(result) <= MAX_NODES else None


def parsed_object(value: Json) -> dict[str, Json] | None:
    found = parsed(value)
    return dict(found) if is_object(found) else None


def parsed_list(value: Json) -> list[Json] | None:
    found = parsed(value)
    return list(found) if is_list(found) else None


def _as_json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _as_python(text: str) -> object:
    """`{'a': True}`: models that think in Python write their literals."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
