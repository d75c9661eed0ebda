"""JSON written as text where an object or a list was expected."""

from __future__ import annotations

import ast
import json
from typing import Final, NoReturn, cast

from fingerpost.call.arguments.values import MAX_DEPTH, MAX_NODES, copy_json, count_nodes, is_list, is_object
from fingerpost.records import Json, check_json

MAX_JSON_LENGTH: Final = 1_000_000
MAX_PYTHON_LENGTH: Final = 4_000


def parse_value(value: Json) -> Json:
    """The object or list a text spells out, or None."""
    if not isinstance(value, str) or len(value) > MAX_JSON_LENGTH:
        return None
    text = value.strip()
    if not text.startswith(("{", "[")) or not text.endswith(("}", "]")):
        return None
    found = _parse_json(text)
    if found is None and len(text) <= MAX_PYTHON_LENGTH:
        found = _parse_python(text)
    if check_json(found, max_depth=MAX_DEPTH) is not None:
        return None
    result = cast("Json", found)
    return copy_json(result) if count_nodes(result) <= MAX_NODES else None


def parse_object(value: Json) -> dict[str, Json] | None:
    found = parse_value(value)
    return dict(found) if is_object(found) else None


def parse_list(value: Json) -> list[Json] | None:
    found = parse_value(value)
    return list(found) if is_list(found) else None


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_python(text: str) -> object:
    """`{'a': True}`: models that think in Python write their literals."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
