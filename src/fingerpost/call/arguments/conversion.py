"""A value of one JSON type where the schema asks for another.

Pure: each function gives the steps that lead to the asked type, or none when
the way is not certain. Whether an item could fit is asked of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fingerpost.call.arguments.parsing import parse_list, parse_object
from fingerpost.call.arguments.scalars import NULL_WORDS, read_scalar
from fingerpost.call.arguments.shapes import SchemaNode
from fingerpost.call.arguments.values import is_list, is_object, is_of_type, to_json
from fingerpost.frozen import frozen
from fingerpost.records import Json, RepairKind

_SEPARATORS: Final = (",", ";", "\n", "|")
_JSON_IN_STRING = re.compile(
    r"\bJSON[- ](?:string|text|encoded)|\b(?:stringified|serialized) JSON", re.IGNORECASE
)
_WITHOUT_SEPARATORS: Final = frozenset({"integer", "number", "boolean"})


@frozen(kw_only=False)
class ConversionStep:
    """One change on the way."""

    kind: RepairKind
    before: Json
    after: Json
    reason: str


ConversionSteps = tuple[ConversionStep, ...]


def convert(
    kind: str, node: SchemaNode, items: SchemaNode, value: Json, fits_item: Callable[[Json], bool]
) -> ConversionSteps:
    """The steps from `value` to this type; none when there is no certain way."""
    if kind == "object":
        return _to_object(value)
    if kind == "array":
        return _to_list(items, value, fits_item)
    if is_list(value):
        return _unwrap_list(kind, node, value)
    if kind == "string" and is_object(value) and _accepts_json(node):
        return (
            ConversionStep(RepairKind.COERCED, value, to_json(value), "the parameter takes JSON as text"),
        )
    reading = read_scalar(kind, value)
    return (
        () if reading is None else (ConversionStep(RepairKind.COERCED, value, reading.value, reading.reason),)
    )


def _to_object(value: Json) -> ConversionSteps:
    found = parse_object(value)
    if found is not None:
        return (ConversionStep(RepairKind.PARSED, value, found, "an object written as text"),)
    if is_list(value) and len(value) == 1 and is_object(value[0]):
        return (ConversionStep(RepairKind.WRAPPED, value, value[0], "a list of one object"),)
    return ()


def _unwrap_list(kind: str, node: SchemaNode, value: Json) -> ConversionSteps:
    assert is_list(value)
    simple = len(value) == 1 and value[0] is not None and not is_list(value[0]) and not is_object(value[0])
    if kind == "string" and _accepts_json(node):
        if simple:
            return ()  # a list as text, or its one item? Both would do
        return (
            ConversionStep(RepairKind.COERCED, value, to_json(value), "the parameter takes JSON as text"),
        )
    if not simple:
        return ()
    first = ConversionStep(RepairKind.WRAPPED, value, value[0], "a list of one value")
    if is_of_type(value[0], frozenset({kind})):
        return (first,)
    reading = read_scalar(kind, value[0])
    if reading is None:
        return ()
    return (first, ConversionStep(RepairKind.COERCED, value[0], reading.value, reading.reason))


def _to_list(items: SchemaNode, value: Json, fits_item: Callable[[Json], bool]) -> ConversionSteps:
    found = parse_list(value)
    if found is not None:
        return (ConversionStep(RepairKind.PARSED, value, found, "a list written as text"),)
    if value is None or (
        isinstance(value, str) and (value.strip().lower() in NULL_WORDS or _is_bracketed(value))
    ):
        return ()
    marks = [mark for mark in _SEPARATORS if mark in value] if isinstance(value, str) else []
    # Free text with a comma in it could be one item or several.
    is_one = not marks or bool(items.choices) or (bool(items.types) and "string" not in items.types)
    if is_one and fits_item(value):
        return (ConversionStep(RepairKind.WRAPPED, value, [value], "one value where a list is expected"),)
    return (
        _split_list(items, value, marks[0], fits_item) if isinstance(value, str) and len(marks) == 1 else ()
    )


def _is_bracketed(text: str) -> bool:
    """A list that could not be read is not an item either."""
    bare = text.strip()
    return bare.startswith("[") and bare.endswith("]")


def _split_list(
    items: SchemaNode, value: str, mark: str, fits_item: Callable[[Json], bool]
) -> ConversionSteps:
    """`1, 2, 3` as a list, where no item could contain the mark itself."""
    if not items.choices and (not items.types or not items.types <= _WITHOUT_SEPARATORS):
        return ()
    parts: list[Json] = [part.strip() for part in value.split(mark) if part.strip()]
    if not parts or not all(fits_item(part) for part in parts):
        return ()
    return (ConversionStep(RepairKind.PARSED, value, parts, f"a list written with {mark!r} in between"),)


def _accepts_json(node: SchemaNode) -> bool:
    if node.keywords.get("contentMediaType") == "application/json":
        return True
    return _JSON_IN_STRING.search(node.description[:500]) is not None
