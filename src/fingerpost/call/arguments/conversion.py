"""A value of one JSON type where the schema asks for another.

Pure: each function gives the steps that lead to the asked type, or none when
the way is not certain. Whether an item could fit is asked of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fingerpost.call.arguments.parsing import parsed_list, parsed_object
from fingerpost.call.arguments.scalars import NOTHING, read_as
from fingerpost.call.arguments.shapes import Shape
from fingerpost.call.arguments.values import is_list, is_object, is_of, written
from fingerpost.frozen import frozen
from fingerpost.records import Json, RepairKind

_SEPARATORS: Final = (",", ";", "\n", "|")
_JSON_AS_TEXT = re.compile(
    r"\bJSON[- ](?:string|text|encoded)|\b(?:stringified|serialized) JSON", re.IGNORECASE
)
_WITHOUT_MARKS: Final = frozenset({"integer", "number", "boolean"})


@frozen(kw_only=False)
class Step:
    """One change on the way."""

    kind: RepairKind
    before: Json
    after: Json
    reason: str


Steps = tuple[Step, ...]


def convert(kind: str, shape: Shape, items: Shape, value: Json, fits_item: Callable[[Json], bool]) -> Steps:
    """The steps from `value` to this type; none when there is no certain way."""
    if kind == "object":
        return _to_object(value)
    if kind == "array":
        return _to_list(items, value, fits_item)
    if is_list(value):
        return _from_list(kind, shape, value)
    if kind == "string" and is_object(value) and _takes_json(shape):
        return (Step(RepairKind.COERCED, value, written(value), "the parameter takes JSON as text"),)
    reading = read_as(kind, value)
    return () if reading is None else (Step(RepairKind.COERCED, value, reading.value, reading.reason),)


def _to_object(value: Json) -> Steps:
    found = parsed_object(value)
    if found is not None:
        return (Step(RepairKind.PARSED, value, found, "an object written as text"),)
    if is_list(value) and len(value) == 1 and is_object(value[0]):
        return (Step(RepairKind.WRAPPED, value, value[0], "a list of one object"),)
    return ()


def _from_list(kind: str, shape: Shape, value: Json) -> Steps:
    assert is_list(value)
    simple = len(value) == 1 and value[0] is not None and not is_list(value[0]) and not is_object(value[0])
    if kind == "string" and _takes_json(shape):
        if simple:
            return ()  # a list as text, or its one item? Both would do
        return (Step(RepairKind.COERCED, value, written(value), "the parameter takes JSON as text"),)
    if not simple:
        return ()
    first = Step(RepairKind.WRAPPED, value, value[0], "a list of one value")
    if is_of(value[0], frozenset({kind})):
        return (first,)
    reading = read_as(kind, value[0])
    if reading is None:
        return ()
    return (first, Step(RepairKind.COERCED, value[0], reading.value, reading.reason))


def _to_list(items: Shape, value: Json, fits_item: Callable[[Json], bool]) -> Steps:
    found = parsed_list(value)
    if found is not None:
        return (Step(RepairKind.PARSED, value, found, "a list written as text"),)
    if value is None or (
        isinstance(value, str) and (value.strip().lower() in NOTHING or _is_bracketed(value))
    ):
        return ()
    marks = [mark for mark in _SEPARATORS if mark in value] if isinstance(value, str) else []
    # Free text with a comma in it could be one item or several.
    is_one = not marks or bool(items.choices) or (bool(items.types) and "string" not in items.types)
    if is_one and fits_item(value):
        return (Step(RepairKind.WRAPPED, value, [value], "one value where a list is expected"),)
    return _split(items, value, marks[0], fits_item) if isinstance(value, str) and len(marks) == 1 else ()


def _is_bracketed(text: str) -> bool:
    """A list that could not be read is not an item either."""
    bare = text.strip()
    return bare.startswith("[") and bare.endswith("]")


def _split(items: Shape, value: str, mark: str, fits_item: Callable[[Json], bool]) -> Steps:
    """`1, 2, 3` as a list, where no item could contain the mark itself."""
    if not items.choices and (not items.types or not items.types <= _WITHOUT_MARKS):
        return ()
    parts: list[Json] = [part.strip() for part in value.split(mark) if part.strip()]
    if not parts or not all(fits_item(part) for part in parts):
        return ()
    return (Step(RepairKind.PARSED, value, parts, f"a list written with {mark!r} in between"),)


def _takes_json(shape: Shape) -> bool:
    if shape.node.get("contentMediaType") == "application/json":
        return True
    return _JSON_AS_TEXT.search(shape.description[:500]) is not None
