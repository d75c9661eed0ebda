"""Arguments that fit as they are, seen at a glance.

Most calls are right, and most schemas are flat: a few texts, numbers and choices.
For those a handful of comparisons tells what the general way (mending, then the
library's validator) would find after hundreds of steps: nothing to do. Whatever is
not plain, in the schema or in the arguments, is left to the general way, which
alone may change or refuse anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Final, TypeAlias, cast

from fingerpost.call.arguments.dates import requires_iso_date
from fingerpost.call.arguments.values import is_list, is_object
from fingerpost.records import Json, JsonObject
from fingerpost.records.json import has_lone_surrogate

ValueCheck: TypeAlias = Callable[[object], bool]

MAX_KEYS: Final = 100
MAX_ITEMS: Final = 100
MAX_INTEGER: Final = 1 << 63

_ROOT: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "default", "examples",
     "$schema", "$defs", "definitions", "$comment"}
)  # fmt: skip
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "$comment"}
)
_BOUNDS: Final = frozenset({"minimum", "maximum", "minLength", "maxLength"})
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (NoneType,),
}


class FastCheck:
    """The plain parameters of one tool."""

    def __init__(self, schema: JsonObject) -> None:
        self._checks: dict[str, ValueCheck] = {}
        self._required: tuple[str, ...] = ()
        self.usable = self._read_schema(schema)

    def _read_schema(self, schema: JsonObject) -> bool:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("type") != "object" or not schema.keys() <= _ROOT:
            return False
        if not is_object(properties) or not is_list(required):
            return False
        self._required = tuple(name for name in required if isinstance(name, str))
        for name, part in properties.items():
            check = _build_check(part)
            if check is not None and not has_lone_surrogate(name):
                self._checks[name] = check
        return len(self._required) == len(required)

    def copy_if_valid(self, arguments: JsonObject) -> dict[str, Json] | None:
        """A copy of the arguments, when they surely fit as they are; None when that takes a closer look."""
        if not self.usable or len(arguments) > MAX_KEYS:
            return None
        checks = self._checks
        taken: dict[str, Json] = {}
        for name, value in arguments.items():
            check = checks.get(name)
            if check is None or not check(value):
                return None
            taken[name] = list(cast("list[Json]", value)) if type(value) is list else value
        for name in self._required:
            if name not in taken:
                return None
        return taken


def _build_check(part: Json) -> ValueCheck | None:
    """What tells whether a value fits this part of a schema; None when the part is not plain."""
    if not is_object(part) or requires_iso_date(_get_text(part, "format"), _get_text(part, "description")):
        return None
    rest = part.keys() - _ANNOTATIONS
    if rest == {"anyOf"}:
        return _build_alternatives_check(part["anyOf"])
    if rest in ({"enum"}, {"enum", "type"}):
        return _build_choice_check(part)
    if rest in ({"items", "type"}, {"type"}) and part["type"] == "array":
        return _build_list_check(part)
    return _build_scalar_check(part) if rest - _BOUNDS == {"type"} else None


def _get_text(part: JsonObject, key: str) -> str:
    found = part.get(key)
    return found if isinstance(found, str) else ""


def _build_alternatives_check(branches: Json) -> ValueCheck | None:
    checks = [_build_check(branch) for branch in branches] if is_list(branches) else []
    known = [check for check in checks if check is not None]
    if not known or len(known) != len(checks):
        return None
    return lambda value: any([check(value) for check in known])  # noqa: C419 - a generator takes longer


def _build_choice_check(part: JsonObject) -> ValueCheck | None:
    choices = part["enum"]
    if part.get("type", "string") != "string" or not is_list(choices):
        return None
    texts = frozenset(choice for choice in choices if isinstance(choice, str))
    if len(texts) != len(choices) or any(map(has_lone_surrogate, texts)):
        return None
    return lambda value: type(value) is str and value in texts


def _build_list_check(part: JsonObject) -> ValueCheck | None:
    items = part.get("items")
    check = _build_check(items)
    if check is None or (is_object(items) and items.get("type") == "array"):
        return None

    def fits(value: object) -> bool:
        if type(value) is not list:
            return False
        found = cast("list[object]", value)
        return len(found) <= MAX_ITEMS and all(map(check, found))

    return fits


def _build_scalar_check(part: JsonObject) -> ValueCheck | None:
    named = part["type"]
    names: Sequence[Json] = named if is_list(named) else [named]
    known = [_TYPES.get(name) for name in names if isinstance(name, str)]
    bounds = [part.get(name) for name in _BOUNDS if name in part]
    if not known or None in known or len(known) != len(names):
        return None
    if any(type(bound) not in (int, float) for bound in bounds):
        return None
    kinds = frozenset(kind for group in known if group is not None for kind in group)
    low, high = _get_number(part, "minimum", -math.inf), _get_number(part, "maximum", math.inf)
    shortest, longest = _get_number(part, "minLength", 0), _get_number(part, "maxLength", math.inf)

    def fits(value: object) -> bool:
        kind = type(value)
        if kind not in kinds:
            return False
        if kind is str:
            text = cast("str", value)
            return shortest <= len(text) <= longest and (text.isascii() or not has_lone_surrogate(text))
        if kind is int:
            return -MAX_INTEGER <= cast("int", value) < MAX_INTEGER and low <= cast("int", value) <= high
        return kind is not float or (
            math.isfinite(cast("float", value)) and low <= cast("float", value) <= high
        )

    return fits


def _get_number(part: JsonObject, name: str, default: float) -> float:
    found = part.get(name, default)
    return found if isinstance(found, int | float) else default
