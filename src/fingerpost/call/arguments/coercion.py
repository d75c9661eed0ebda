"""JSON values of arguments: copies, limits, texts about them without secrets, and their conversion to another
type if there is only one reading.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, RepairKind, find_json_problem
from fingerpost.records.json import parse_strict_json
from fingerpost.redaction import MASK, is_secret_name, scrub, scrub_json
from fingerpost.regex import prepare_re
from fingerpost.schemas import SchemaNode, is_list, is_object, is_of_type

MAX_DEPTH: Final = 32  # the library needs several stack frames per level
MAX_NODES: Final = 20_000
MAX_SHOWN_LENGTH: Final = 60
MAX_KEPT_LENGTH: Final = 400  # characters of a text in the record of a repair
MAX_SCRUBBED_LENGTH: Final = 4_000  # a secret that begins in the shown part ends within this length
MAX_KEPT_NODES: Final = 200  # values of an object or list in the record of a repair


def copy_json(value: Json) -> Json:
    """Return a deep copy made of dicts and lists."""
    if is_object(value):
        return {key: copy_json(entry) for key, entry in value.items()}
    if is_list(value):
        return [copy_json(item) for item in value]
    return value


def copy_object(value: JsonObject) -> dict[str, Json]:
    return {key: copy_json(entry) for key, entry in value.items()}


def find_excess(value: JsonObject) -> str | None:
    """Return why these arguments are too large to check, or None."""
    reason = find_json_problem(value, max_depth=MAX_DEPTH)
    if reason is not None:
        return reason
    return None if count_nodes(value) <= MAX_NODES else f"holds more than {MAX_NODES} values"


def count_nodes(value: Json) -> int:
    count, todo = 0, [value]
    while todo and count <= MAX_NODES:
        node = todo.pop()
        count += 1
        if is_object(node):
            todo.extend(node.values())
        elif is_list(node):
            todo.extend(node)
    return count


def redact_value(path: str, value: Json) -> Json:
    """Return the value for the record of a repair: without secrets, and shortened."""
    if value is not None and is_secret_name(path.rpartition(".")[2]):
        return MASK
    if not isinstance(value, str) and count_nodes(value) > MAX_KEPT_NODES:
        return f"{'an object' if is_object(value) else 'a list'} of more than {MAX_KEPT_NODES} values"
    return cast("Json", scrub_json(_cut_texts(value)))


def _cut_texts(value: Json) -> Json:
    """Return the value with all texts scrubbed and cut to the length that is kept."""
    if is_object(value):
        return {key: _cut_texts(entry) for key, entry in value.items()}
    if is_list(value):
        return [_cut_texts(item) for item in value]
    if not isinstance(value, str):
        return value
    text = scrub(value[:MAX_SCRUBBED_LENGTH])
    return text if len(value) <= MAX_KEPT_LENGTH else f"{text[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"


def format_value(path: str, value: Json) -> str:
    """Format a value for an error message: short, and without secrets."""
    if isinstance(value, str) and value and is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        # Scrub more than is shown, so that a secret is not cut in half before it is recognised.
        text = scrub(value[:MAX_SCRUBBED_LENGTH])
        return json.dumps(shorten(text, MAX_SHOWN_LENGTH), ensure_ascii=False)
    if is_object(value) or is_list(value):
        noun = "object" if is_object(value) else "list"
        return (
            f"a {noun}" if len(value) == 0 else f"{noun} {shorten(_format_safely(value), MAX_SHOWN_LENGTH)}"
        )
    return to_json(value)


def _format_safely(value: Json) -> str:
    return to_json(cast("Json", scrub_json(value)))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def to_json(value: Json) -> str:
    """Return the value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=dict)


MAX_JSON_LENGTH: Final = 1_000_000
MAX_PYTHON_LENGTH: Final = 4_000


def parse_value(value: Json) -> Json:
    """Return the object or list that a text contains as JSON, or None."""
    if not isinstance(value, str) or len(value) > MAX_JSON_LENGTH:
        return None
    text = value.strip()
    if not text.startswith(("{", "[")) or not text.endswith(("}", "]")):
        return None
    found = _parse_json(text)
    if found is None and len(text) <= MAX_PYTHON_LENGTH:
        found = _parse_python(text)
    if find_json_problem(found, max_depth=MAX_DEPTH) is not None:
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
        return parse_strict_json(text)
    except ValueError:
        return None


def _parse_python(text: str) -> object:
    """Parse Python literals such as `{'a': True}`, which some models write."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


MAX_NUMBER_LENGTH: Final = 60
_MAX_EXACT_INTEGER: Final = 2**53  # larger floats do not identify one integer

_INTEGER = prepare_re(r"[+-]?[0-9]+")
_NUMBER = prepare_re(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = prepare_re(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
# `1,234` is 1.234 in many countries. Two groups, or a point after them, are unambiguous.
_SURE_THOUSANDS = prepare_re(r"[+-]?[0-9]{1,3}(?:(?:,[0-9]{3}){2,}(?:\.[0-9]+)?|,[0-9]{3}\.[0-9]+)")

_TRUE_WORDS: Final = frozenset({"true", "yes", "on", "1", "y", "t"})
_FALSE_WORDS: Final = frozenset({"false", "no", "off", "0", "n", "f"})
NULL_WORDS: Final = frozenset({"", "null", "none", "undefined", "nil"})


@frozen(kw_only=False)
class ScalarReading:
    """A value converted to another type, with the reason."""

    value: Json
    reason: str

    @property
    def pair(self) -> tuple[Json, str]:
        return self.value, self.reason


def read_scalar(kind: str, value: Json) -> ScalarReading | None:
    """Convert the value to this JSON type. Return None if that would be a guess."""
    match kind:
        case "integer":
            return _read_integer(value)
        case "number":
            return _read_number(value)
        case "boolean":
            return _read_boolean(value)
        case "string":
            return _read_string(value)
        case "null":
            nothing = isinstance(value, str) and value.strip().lower() in NULL_WORDS
            return ScalarReading(None, "an empty value stands for null") if nothing else None
        case _:
            return None


def _get_short_text(value: Json) -> str | None:
    """Return stripped text that is short enough to be a number, else None."""
    if not isinstance(value, str):
        return None
    text = value.strip()[: MAX_NUMBER_LENGTH + 1]
    return text if len(text) <= MAX_NUMBER_LENGTH else None


def _read_integer(value: Json) -> ScalarReading | None:
    text = _get_short_text(value)
    if text is None:
        return None
    if _INTEGER.fullmatch(text):
        return ScalarReading(int(text), "text that is an integer")
    if _THOUSANDS.fullmatch(text):
        return ScalarReading(int(text.replace(",", "")), "an integer with thousands separators")
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number.is_integer() and abs(number) < _MAX_EXACT_INTEGER:
            return ScalarReading(int(number), "text that is a whole number")
    return None


def _read_number(value: Json) -> ScalarReading | None:
    text = _get_short_text(value)
    if text is None:
        return None
    if _INTEGER.fullmatch(text):
        return ScalarReading(int(text), "text that is a number")
    if _SURE_THOUSANDS.fullmatch(text):
        bare = text.replace(",", "")
        return ScalarReading(float(bare) if "." in bare else int(bare), "a number with thousands separators")
    if _NUMBER.fullmatch(text):
        number = float(text)
        return ScalarReading(number, "text that is a number") if abs(number) < float("inf") else None
    return None


def _read_boolean(value: Json) -> ScalarReading | None:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE_WORDS:
            return ScalarReading(True, "a word for true")  # noqa: FBT003 - the value itself
        return ScalarReading(False, "a word for false") if word in _FALSE_WORDS else None  # noqa: FBT003 - the value itself
    if isinstance(value, int | float) and not isinstance(value, bool) and value in (0, 1):
        return ScalarReading(value == 1, "1 or 0 where true or false is expected")
    return None


def _read_string(value: Json) -> ScalarReading | None:
    if isinstance(value, bool | int | float):
        return ScalarReading(to_json(value), "a plain value where text is expected")
    return None


def read_whole_float(value: float) -> ScalarReading | None:
    """Convert `3.0` to `3`: many servers reject the former for an integer."""
    if value.is_integer() and abs(value) < _MAX_EXACT_INTEGER:
        return ScalarReading(int(value), "a whole number written with a decimal point")
    return None


_ISO = prepare_re(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ASKS_FOR_ISO = prepare_re(r"\bYYYY-MM-DD\b", re.IGNORECASE)
_ASKS_FOR_MORE = prepare_re(r"\bYYYY-MM-DD[T ]?H|\bHH:MM|\bMM/DD|\bDD/MM|\bMM-DD-|\bDD-MM-", re.IGNORECASE)


def requires_iso_date(form: str, description: str) -> bool:
    """Return whether the schema requires an ISO date, by its format or its description."""
    if form:
        return form == "date"
    text = description[:1000]
    return _ASKS_FOR_ISO.search(text) is not None and _ASKS_FOR_MORE.search(text) is None


def is_iso_date(text: str) -> bool:
    return _ISO.fullmatch(text) is not None


_SEPARATORS: Final = (",", ";", "\n", "|")
_JSON_IN_STRING = prepare_re(
    r"\bJSON[- ](?:string|text|encoded)|\b(?:stringified|serialized) JSON", re.IGNORECASE
)
_TYPES_WITHOUT_SEPARATORS: Final = frozenset({"integer", "number", "boolean"})


@frozen(kw_only=False)
class ConversionStep:
    """One step of a conversion."""

    kind: RepairKind
    before: Json
    after: Json
    reason: str


ConversionSteps = tuple[ConversionStep, ...]


def convert(
    kind: str, node: SchemaNode, items: SchemaNode, value: Json, fits_item: Callable[[Json], bool]
) -> ConversionSteps:
    """Return the steps that convert `value` to this type, or none if there is no certain way."""
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
            return ()  # ambiguous: a list as text, or its only item
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
    # Free text with a comma could be one item or several.
    is_one = not marks or bool(items.choices) or (bool(items.types) and "string" not in items.types)
    if is_one and fits_item(value):
        return (ConversionStep(RepairKind.WRAPPED, value, [value], "one value where a list is expected"),)
    return (
        _split_list(items, value, marks[0], fits_item) if isinstance(value, str) and len(marks) == 1 else ()
    )


def _is_bracketed(text: str) -> bool:
    """Return whether the text looks like a list. If it cannot be parsed, it is not a single item either."""
    bare = text.strip()
    return bare.startswith("[") and bare.endswith("]")


def _split_list(
    items: SchemaNode, value: str, mark: str, fits_item: Callable[[Json], bool]
) -> ConversionSteps:
    """Split `1, 2, 3` into a list, if no item can contain the separator."""
    if not items.choices and (not items.types or not items.types <= _TYPES_WITHOUT_SEPARATORS):
        return ()
    parts: list[Json] = [part.strip() for part in value.split(mark) if part.strip()]
    if not parts or not all(fits_item(part) for part in parts):
        return ()
    return (ConversionStep(RepairKind.PARSED, value, parts, f"a list written with {mark!r} in between"),)


def _accepts_json(node: SchemaNode) -> bool:
    if node.keywords.get("contentMediaType") == "application/json":
        return True
    return _JSON_IN_STRING.search(node.description[:500]) is not None
