"""JSON values, their limits, and canonical JSON for fingerprints."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # a codec passes JSON through unchanged: validating every node again would be slow and useless
from collections.abc import Mapping

import orjson

JsonObject: TypeAlias = Mapping[str, Json]

SCALARS = (str, int, float, bool, NoneType)
_SCALAR_TYPES: frozenset[object] = frozenset(SCALARS)
_PLAIN_TYPES = frozenset({bool, NoneType})  # always valid

MAX_DEPTH = 100
MAX_INTEGER_DIGITS = 4000  # Python refuses to print integers that are slightly longer

# Larger values are processed in a thread. Up to this size it takes one or two milliseconds.
LARGE_SIZE: Final = 100_000  # bytes or characters
_VALUE_SIZE: Final = 100  # the cost of one value, in characters
_STEP_SIZE: Final = 4_096  # characters parsed at once
# Below this level, a large value is parsed at once, which costs less than splitting it.
_MAX_STEP_LEVELS: Final = 12
_WHITE_SPACE: Final = re.compile(r"[ \t\n\r]*")


def is_large_value(value: object) -> bool:
    """Return whether a value has many parts or long text. The check is cheap for values of any size."""
    size = 0
    todo: list[Any] = [value]
    while todo and size <= LARGE_SIZE:
        node = todo.pop()
        kind = cast("object", type(node))  # first, because `isinstance` with Mapping is slow
        size += len(node) if kind is str else _VALUE_SIZE
        if kind is dict or (kind not in _SCALAR_TYPES and isinstance(node, Mapping)):
            todo.extend(cast("Mapping[str, object]", node).values())
        elif kind is list or kind is tuple:
            todo.extend(node)
    return size > LARGE_SIZE


def refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and the infinities, which Python's parser accepts."""
    raise ValueError(f"{constant} is not JSON")


def parse_strict_json(
    text: str,
    *,
    control_characters: bool = False,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parse JSON. Raises `ValueError` for NaN, the infinities and what is nested too deeply, too.

    `control_characters`: texts may contain them, as those of models do.
    """
    try:
        return json.loads(
            text,
            strict=not control_characters,
            object_pairs_hook=object_pairs_hook,
            parse_constant=refuse_constant,
        )
    except RecursionError as deep:
        message = "nested too deeply"
        raise ValueError(message) from deep


def parse_in_steps(
    text: str,
    *,
    parse_int: Callable[[str], object] | None = None,
    parse_constant: Callable[[str], object] | None = None,
) -> Any:
    """Like `json.loads`, for use in a thread: in short steps, so that the event loop can run in between.

    The C parser holds the GIL for the whole text, about 35 ms per MiB of small values. Here it parses only
    small values; larger ones are split.
    """
    decoder = json.JSONDecoder(parse_int=parse_int, parse_constant=parse_constant)
    scan = cast("Callable[[str, int], tuple[object, int]]", decoder.scan_once)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    value, end = _parse_value(text, _skip_space(text, 0), scan, _MAX_STEP_LEVELS)
    if (end := _skip_space(text, end)) != len(text):
        _raise_decode_error("Extra data", text, end)
    return value


def _raise_decode_error(why: str, text: str, at: int) -> NoReturn:
    raise json.JSONDecodeError(why, text, at)


_JsonScanner: TypeAlias = "Callable[[str, int], tuple[object, int]]"


def _skip_space(text: str, at: int) -> int:
    found = _WHITE_SPACE.match(text, at)
    return at if found is None else found.end()


def _parse_value(text: str, at: int, scan: _JsonScanner, levels: int) -> tuple[object, int]:
    begins = text[at : at + 1]
    if begins in ("{", "[") and levels and len(text) - at > _STEP_SIZE:
        try:
            value, end = scan(text[at : at + _STEP_SIZE], 0)
        except (ValueError, StopIteration):  # longer than one step, or invalid
            return (_parse_object if begins == "{" else _parse_list)(text, at, scan, levels - 1)
        return value, at + end
    try:
        return scan(text, at)
    except StopIteration as stopped:
        end = cast("int", stopped.value)
    _raise_decode_error("Expecting value", text, end)


def _parse_list(text: str, at: int, scan: _JsonScanner, levels: int) -> tuple[object, int]:
    items: list[object] = []
    at = _skip_space(text, at + 1)
    if text[at : at + 1] == "]":
        return items, at + 1
    while True:
        item, at = _parse_value(text, at, scan, levels)
        items.append(item)
        at = _skip_space(text, at)
        if (mark := text[at : at + 1]) == "]":
            return items, at + 1
        if mark != ",":
            _raise_decode_error("Expecting ',' delimiter", text, at)
        at = _skip_space(text, at + 1)


def _parse_object(text: str, at: int, scan: _JsonScanner, levels: int) -> tuple[object, int]:
    members: dict[object, object] = {}
    at = _skip_space(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        if text[at : at + 1] != '"':
            _raise_decode_error("Expecting property name enclosed in double quotes", text, at)
        name, at = _parse_value(text, at, scan, levels)
        at = _skip_space(text, at)
        if text[at : at + 1] != ":":
            _raise_decode_error("Expecting ':' delimiter", text, at)
        members[name], at = _parse_value(text, _skip_space(text, at + 1), scan, levels)
        at = _skip_space(text, at)
        if (mark := text[at : at + 1]) == "}":
            return members, at + 1
        if mark != ",":
            _raise_decode_error("Expecting ',' delimiter", text, at)
        at = _skip_space(text, at + 1)


def find_json_problem(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Return why `value` is not valid JSON within our limits, or None.

    The check works level by level without recursion, because the sender controls the depth.
    """
    level: list[object] = [value]
    for _ in range(max_depth + 1):
        below: list[object] = []
        for node in level:
            if type(node) in _PLAIN_TYPES or (type(node) is str and node.isascii()):
                continue  # the usual case, and every tool result passes through here
            # Scalars first: `isinstance` with Mapping is slow.
            reason = (
                _find_scalar_problem(node) if isinstance(node, SCALARS) else _collect_children(node, below)
            )
            if reason is not None:
                return reason
        if not below:
            return None
        level = below
    return f"is nested more than {max_depth} levels deep"


def _collect_children(node: object, below: list[object]) -> str | None:
    """Add the items of a container to `below`. Return why it is invalid, or None."""
    if isinstance(node, list | tuple):
        below.extend(cast("Sequence[object]", node))
        return None
    if type(node) is not dict and not isinstance(node, Mapping):
        return f"holds a {type(node).__name__}, which JSON cannot represent"
    entries = cast("Mapping[object, object]", node)
    for key in entries:
        if type(key) is str and key.isascii():
            continue
        if not isinstance(key, str) or has_lone_surrogate(key):
            return f"has a key that is not text: {key!r:.60}"
    below.extend(entries.values())
    return None


def _find_scalar_problem(node: bool | int | float | str | None) -> str | None:
    if isinstance(node, str):
        return "holds text that is not valid Unicode" if has_lone_surrogate(node) else None
    if isinstance(node, float):
        return None if math.isfinite(node) else f"holds {node}, which JSON cannot represent"
    if node is not None and node.bit_length() > MAX_INTEGER_DIGITS * 3.32:
        return f"holds an integer of more than {MAX_INTEGER_DIGITS} digits"
    return None


def has_lone_surrogate(text: str) -> bool:
    """Return whether the text has a lone surrogate: valid in a Python string, but impossible to encode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def to_valid_text(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be stored and sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def to_valid_json(value: object, *, max_depth: int = MAX_DEPTH) -> object:
    """Return the value with valid text in all values and keys. Raises `ValueError` if it is too deep."""
    if isinstance(value, str):
        return value if value.isascii() else to_valid_text(value)
    if isinstance(value, Mapping | list | tuple) and not max_depth:
        message = "is nested too deep"
        raise ValueError(message)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        below = max_depth - 1
        return {
            to_valid_json(key, max_depth=below): to_valid_json(each, max_depth=below) for key, each in entries
        }
    if isinstance(value, list | tuple):
        return [to_valid_json(each, max_depth=max_depth - 1) for each in cast("Sequence[object]", value)]
    return value


_SORTED_OPTIONS: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
# The encoders write fractions differently, and one writes null for NaN.
_AMBIGUOUS_JSON: Final = re.compile(rb"[\[:,](?:-?[0-9]+[.eE]|null)")


def to_canonical_json(value: object) -> bytes:
    """Return the canonical bytes of `value` for its fingerprint.

    `value` must have passed `find_json_problem`.
    """
    return _encode_quickly(value) or _encode_canonical(value).encode()


def _encode_quickly(value: object) -> bytes | None:
    """Return the bytes of `_encode_canonical`, five times faster, or None where they may differ."""
    try:
        data = orjson.dumps(value, option=_SORTED_OPTIONS)
    except TypeError:  # mappings that are not dicts, a lone surrogate, a long integer
        return None
    # The encoders write DEL differently as well.
    return data if data.isascii() and b"\x7f" not in data and not _AMBIGUOUS_JSON.search(data) else None


def _to_dict(value: object) -> dict[str, object]:
    """Convert mappings that are not dicts. Other types were refused before."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return dict(cast("Mapping[str, object]", value))


_encode_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_to_dict
).encode


# Values that only resemble JSON types are left to the full check.
_STRICT_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
# Many schemas contain the text "null". The pattern starts with the literal because that search is thirty
# times as fast as one that starts with a character class.
_NULL: Final = re.compile(rb"null(?<=[:,\[]null)")


def find_json_fault(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Return why `value` cannot be sent as JSON, or None. Like `check_json`, but faster."""
    if encode_if_valid(value, max_depth) is not None:
        return None
    return find_json_problem(value, max_depth=max_depth)


def encode_if_valid(value: object, max_depth: int) -> bytes | None:
    """Return `value` as JSON if the encoding alone proves it valid, else None: check it fully."""
    try:
        data = orjson.dumps(value, option=_STRICT_OPTIONS)
    except TypeError:  # a lone surrogate, a long integer, or not JSON
        return None
    # NaN is encoded as null, and deep values have many brackets; both need the full check.
    return data if data.count(b"[") + data.count(b"{") <= max_depth and not _has_null(data) else None


def _has_null(data: bytes) -> bool:
    return data == b"null" or _NULL.search(data) is not None
