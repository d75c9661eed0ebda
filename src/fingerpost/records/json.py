"""JSON values, and the bounds within which we are willing to hold one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # a codec passes JSON through as it is: checking every node again would cost and find nothing

JsonObject: TypeAlias = Mapping[str, Json]

SCALARS = (str, int, float, bool, NoneType)
_PLAIN = frozenset({bool, NoneType})  # nothing can be wrong with these

MAX_DEPTH = 100
MAX_INTEGER_DIGITS = 4000  # Python itself refuses to print integers a little longer than this


def check_json(value: object, *, max_depth: int = MAX_DEPTH) -> str | None:
    """Why `value` cannot be carried as JSON, or None when it can.

    Checked level by level, without recursion: the depth is the sender's choice, our stack is not.
    """
    level: list[object] = [value]
    for _ in range(max_depth + 1):
        below: list[object] = []
        for node in level:
            if type(node) in _PLAIN or (type(node) is str and node.isascii()):
                continue  # most nodes are so, and every result of every tool comes by here
            # Scalars first: asking whether something is a Mapping is slow.
            reason = _check_scalar(node) if isinstance(node, SCALARS) else _gather(node, below)
            if reason is not None:
                return reason
        if not below:
            return None
        level = below
    return f"is nested more than {max_depth} levels deep"


def _gather(node: object, below: list[object]) -> str | None:
    """Put what a container holds into `below`, or say why it cannot be carried."""
    if isinstance(node, list | tuple):
        below.extend(cast("Sequence[object]", node))
        return None
    if type(node) is not dict and not isinstance(node, Mapping):
        return f"holds a {type(node).__name__}, which JSON cannot say"
    entries = cast("Mapping[object, object]", node)
    for key in entries:
        if type(key) is str and key.isascii():
            continue
        if not isinstance(key, str) or has_lone_surrogate(key):
            return f"has a key that is not text: {key!r:.60}"
    below.extend(entries.values())
    return None


def _check_scalar(node: bool | int | float | str | None) -> str | None:
    if isinstance(node, str):
        return "holds text that is not valid Unicode" if has_lone_surrogate(node) else None
    if isinstance(node, float):
        return None if math.isfinite(node) else f"holds {node}, which JSON cannot say"
    if node is not None and node.bit_length() > MAX_INTEGER_DIGITS * 3.32:
        return f"holds an integer of more than {MAX_INTEGER_DIGITS} digits"
    return None


def has_lone_surrogate(text: str) -> bool:
    """Half a character: legal in a Python string, impossible to encode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def as_valid_text(text: str) -> str:
    """`text` with every half character replaced, so that it can be stored and sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_valid_json(value: object, *, max_depth: int = MAX_DEPTH) -> object:
    """The same with valid text throughout, keys included. Raises `ValueError` where it is nested deeper."""
    if isinstance(value, str):
        return value if value.isascii() else as_valid_text(value)
    if isinstance(value, Mapping | list | tuple) and not max_depth:
        message = "is nested too deep"
        raise ValueError(message)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        below = max_depth - 1
        return {
            as_valid_json(key, max_depth=below): as_valid_json(each, max_depth=below) for key, each in entries
        }
    if isinstance(value, list | tuple):
        return [as_valid_json(each, max_depth=max_depth - 1) for each in cast("Sequence[object]", value)]
    return value
