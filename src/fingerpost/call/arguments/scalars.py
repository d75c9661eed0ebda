"""One simple value as another type, where the reading is certain."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.call.arguments.values import to_json
from fingerpost.frozen import frozen
from fingerpost.records import Json

MAX_NUMBER_LENGTH: Final = 60
_EXACT: Final = 2**53  # beyond it a float no longer names one integer

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
# `1,234` is 1.234 in half of Europe; two groups, or a point after them, can be read in one way only.
_SURE_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:(?:,[0-9]{3}){2,}(?:\.[0-9]+)?|,[0-9]{3}\.[0-9]+)")

_TRUE: Final = frozenset({"true", "yes", "on", "1", "y", "t"})
_FALSE: Final = frozenset({"false", "no", "off", "0", "n", "f"})
NULL_WORDS: Final = frozenset({"", "null", "none", "undefined", "nil"})


@frozen(kw_only=False)
class ScalarReading:
    """A value read as another type, and why that is certain."""

    value: Json
    reason: str

    @property
    def pair(self) -> tuple[Json, str]:
        return self.value, self.reason


def read_scalar(kind: str, value: Json) -> ScalarReading | None:
    """The value as this JSON type, or None when that would be a guess."""
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
    """Text short enough to be a number, without the space around it."""
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
        if number.is_integer() and abs(number) < _EXACT:
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
        if word in _TRUE:
            return ScalarReading(True, "a word for true")  # noqa: FBT003 - the value itself
        return ScalarReading(False, "a word for false") if word in _FALSE else None  # noqa: FBT003 - the value itself
    if isinstance(value, int | float) and not isinstance(value, bool) and value in (0, 1):
        return ScalarReading(value == 1, "1 or 0 where true or false is expected")
    return None


def _read_string(value: Json) -> ScalarReading | None:
    if isinstance(value, bool | int | float):
        return ScalarReading(to_json(value), "a plain value where text is expected")
    return None


def read_whole_float(value: float) -> ScalarReading | None:
    """`3.0` as `3`: many servers refuse the former where an integer is expected."""
    if value.is_integer() and abs(value) < _EXACT:
        return ScalarReading(int(value), "a whole number written with a decimal point")
    return None
